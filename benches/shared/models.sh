# Models that on_cpu and on_gpu share.

# desi_model FOLDER: three arms with the emulators of the reference data in FOLDER, vsini free.
desi_model() {
    for arm in b r z; do printf '[[arm]]\nname = "%s"\nemulator = "%s"\n' $arm "$(realpath "$1")/desi/$arm.safetensors"; done
    cat <<'MODEL'
[continuum]
kind = "rbf"
terms = 10
marginalise = true
[velocity]
range = [-1000.0, 1000.0]
[vsini]
range = [0.0, 500.0]
MODEL
}
