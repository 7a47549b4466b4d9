def check_writing(program, folder): pass
