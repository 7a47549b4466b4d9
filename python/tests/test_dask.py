"""Runs in parts on a Dask cluster of spawned processes."""

import os
import pathlib
import pickle
import shutil
import signal
import threading
import time

import pytest
from conftest import ROOT, required

import popfit
import popfit.surveys

distributed = required("distributed")
import popfit.dask  # noqa: E402

DATA = ROOT / "data"
MODEL = DATA / "model.toml"
SPECTRA = 64
FILES = 8
#: Workers that are killed.
KILLS = 5

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning:distributed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of the demo's spectra, and the table of one run over them."""
    folder = tmp_path_factory.mktemp("survey")
    names = [shutil.copy(DATA / "spectra.npz", folder / f"spectra-{file}.npz") for file in range(FILES)]
    popfit.fit_files(MODEL, names, folder / "one.parquet", device="cpu")
    return names, (folder / "one.parquet").read_bytes()


def start_cluster(tmp_path, workers=2):
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
    )


@pytest.fixture
def client(tmp_path):
    with start_cluster(tmp_path) as cluster, distributed.Client(cluster) as client:
        yield client


def test_a_cluster_writes_the_table_of_one_run(files, client, tmp_path):
    names, one = files
    output = tmp_path / "results.parquet"
    dataset = popfit.dask.fit(MODEL, names, output, client=client, device="cpu", parts=FILES)
    assert output.read_bytes() == one
    assert dataset.count_rows() == FILES * SPECTRA
    with pytest.raises(FileExistsError):
        popfit.dask.fit(MODEL, names, output, client=client, device="cpu")
    # two clients on one output: the parts are there
    assert popfit.dask.fit_plan(f"{output}.parts", client=client, device="cpu") == []


def test_killed_workers_cost_nothing(files, client, tmp_path):
    """Killed in the middle of parts, at five moments: nothing is missing, and nothing there twice."""
    names, one = files
    plan = popfit.surveys.plan(MODEL, names, tmp_path / "run", part_rows=8)
    is_over = threading.Event()
    killed = set()

    def kill():
        while len(killed) < KILLS and not is_over.wait(0.5):
            pids = [nanny.pid for nanny in client.cluster.workers.values()]
            alive = [pid for pid in pids if pid and pid not in killed]
            if alive:
                os.kill(alive[0], signal.SIGKILL)
                killed.add(alive[0])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        fitted = popfit.dask.fit_plan(plan, client=client, device="cpu")
    finally:
        is_over.set()
        killer.join()
    assert len(killed) == KILLS
    assert plan.missing() == []
    assert sorted(part.part for part in fitted) == list(range(len(plan)))
    plan.merge(tmp_path / "merged.parquet")
    assert (tmp_path / "merged.parquet").read_bytes() == one


def test_a_call_after_the_end_of_its_cluster_goes_on(files, tmp_path):
    """With the scheduler dies all that it knew; what is on the disk stays."""
    names, one = files
    plan = popfit.surveys.plan(MODEL, names, tmp_path / "run", part_rows=16)
    first = start_cluster(tmp_path)
    client = distributed.Client(first)

    def close():
        while len(plan.missing()) > len(plan) - 3:
            time.sleep(0.01)
        first.close()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(popfit.Error, match="fitting again goes on"):
        popfit.dask.fit_plan(plan, client=client, device="cpu")
    closer.join()
    client.close()
    left = plan.missing()
    assert 0 < len(left) < len(plan)
    with start_cluster(tmp_path) as second, distributed.Client(second) as client:
        fitted = popfit.dask.fit_plan(plan, client=client, device="cpu")
    assert {part.part for part in fitted} <= set(left)
    plan.merge(tmp_path / "merged.parquet")
    assert (tmp_path / "merged.parquet").read_bytes() == one


def test_a_bad_file_costs_its_own_part_alone(files, client, tmp_path):
    names = [shutil.copy(name, tmp_path) for name in files[0]]
    plan = popfit.surveys.plan(MODEL, names, tmp_path / "run", parts=FILES)
    pathlib.Path(names[3]).write_bytes(b"PK")
    with pytest.raises(popfit.dask.PartsFailed, match=r"1 of 8 parts failed(.|\n)*spectra-3\.npz") as error:
        popfit.dask.fit_plan(plan, client=client, device="cpu", retries=2)
    assert plan.missing() == [3]
    (failed,) = pickle.loads(pickle.dumps(error.value)).failed
    assert failed.part == 3 and len(failed.causes) == 2
    assert (tmp_path / "run" / "_failed.json").exists()
    # once it is mended, the same call goes on
    shutil.copy(files[0][3], names[3])
    (part,) = popfit.dask.fit_plan(plan, client=client, device="cpu")
    assert part.part == 3 and not (tmp_path / "run" / "_failed.json").exists()


def test_names_hashes_and_counts_pass_the_scheduler(files, client, tmp_path):
    """Bytes of a task and of its result, for a part of 4 spectra and of 512."""
    names, _ = files
    for part_rows in (4, FILES * SPECTRA):
        plan = popfit.surveys.plan(MODEL, names, tmp_path / f"run{part_rows}", part_rows=part_rows)
        task = (popfit.dask._fit_part, plan.folder, 0, pathlib.Path(plan.path(0)).name, "cpu", 2)
        future = client.submit(*task, pure=False)
        assert len(pickle.dumps(task)) < 200 + len(plan.folder)
        assert len(pickle.dumps(future.result())) < 500


def test_a_worker_that_cannot_fit_does_not_fail_the_parts(files, client, tmp_path):
    names, _ = files
    plan = popfit.surveys.plan(MODEL, names, tmp_path / "run", parts=FILES)
    with pytest.raises(popfit.Error, match=r"no worker can fit parts(.|\n)*gpx"):
        popfit.dask.fit_plan(plan, client=client, device="gpx")
    assert not any(plan.has_failed(part, 1) for part in range(len(plan)))
    for wrong, match in [({"client": "tcp://host"}, "client"), ({"retries": 0}, "retries")]:
        with pytest.raises(popfit.InputError, match=match):
            popfit.dask.fit_plan(plan, **{"client": client, "device": "cpu"} | wrong)
    with pytest.raises(popfit.InputError, match="ends in"):
        popfit.dask.fit(MODEL, names, tmp_path / "results.parq", client=client)


def test_parts_go_to_the_workers_that_can_fit(files, client, tmp_path):
    """The device of one of two workers fails: it gets no more parts, and none of them counts as failed."""
    names, one = files
    plan = popfit.surveys.plan(MODEL, names, tmp_path / "run", part_rows=16)

    def break_device():
        def warm_up(plan, **settings):
            raise popfit.DeviceError("the card is gone", device="gpu")

        popfit.surveys.Plan.warm_up = warm_up

    client.run(break_device, workers=[sorted(client.scheduler_info()["workers"])[0]])
    fitted = popfit.dask.fit_plan(plan, client=client, device="cpu")
    assert sorted(part.part for part in fitted) == list(range(len(plan)))
    assert not any(plan.has_failed(part, 1) for part in range(len(plan)))
    plan.merge(tmp_path / "merged.parquet")
    assert (tmp_path / "merged.parquet").read_bytes() == one
