"""Runs in parts on a Dask cluster of spawned processes."""

import dataclasses
import json
import os
import pathlib
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import ROOT, required

import popfit
import popfit.surveys

dask, da = required("dask"), required("dask.array")
distributed = required("distributed")
from tornado.iostream import IOStream  # noqa: E402

import popfit.dask  # noqa: E402

DATA = ROOT / "data"
MODEL = DATA / "model.toml"
SPECTRA = 64
FILES = 8
#: Workers that are killed; 50 take two minutes.
KILLS = int(os.environ.get("POPFIT_KILLS", "5"))
#: Manifests of two software drivers of Vulkan: Mesa's, and Chromium's SwiftShader.
DRIVERS = ("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "/usr/lib/chromium/vk_swiftshader_icd.json")

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
    """Killed in the middle of parts, at moments all over the run: nothing is missing, and nothing there twice."""
    names, one = files
    plan = popfit.surveys.plan(MODEL, names, tmp_path / "run", part_rows=8 if KILLS < 10 else 1)
    is_over = threading.Event()
    killed = set()

    def kill():
        seen = {}  # when each process was first seen among those that have reached the scheduler
        while len(killed) < KILLS and not is_over.wait(0.01):
            reached = client.scheduler_info(n_workers=-1)["workers"]
            nannies = [nanny for nanny in client.cluster.workers.values() if nanny.worker_address in reached]
            now = time.monotonic()
            seen = {nanny.pid: seen.get(nanny.pid, now) for nanny in nannies}
            # Dask gives up a worker that dies while it starts
            ready = [pid for pid, since in seen.items() if pid not in killed and pid and now > since + 0.2]
            there = len(plan) - len(plan.missing())
            if ready and there >= len(killed) * len(plan) // (KILLS + 1):
                killed.add(ready[0])
                os.kill(ready[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        # Dask's cluster removes a worker that is away twice, this long after one another
        with dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}):
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


def test_blocks_are_fitted_on_a_cluster(client):
    """Models and fitters travel to spawned workers."""
    x = np.linspace(0.0, 5.0, 20)
    values = 3.0 * np.exp(-np.linspace(0.5, 2.0, 30)[:, np.newaxis] * x)
    array = da.from_array(values, chunks=(8, -1))
    lazy = popfit.dask.fit_blocks(array, 1, x, lambda x, a, k: a * np.exp(-k * x), {"a": 1.0, "k": np.ones(30)})
    fits = client.compute(lazy.parameters).result()
    wanted = popfit.CurveFitter("a*exp(-k*x)").fit(x, values, [1.0, 1.0]).parameters
    np.testing.assert_allclose(fits, wanted, rtol=1e-9)


@pytest.fixture
def passed(monkeypatch):
    """Return a list that gets the numbers of bytes on the sockets of this process: of the client and the scheduler."""
    numbers = []

    def count(method):
        original = getattr(IOStream, method)

        def counting(stream, buffer):
            number = original(stream, buffer)
            numbers.append(number or 0)
            return number

        monkeypatch.setattr(IOStream, method, counting)

    count("read_from_fd")
    count("write_to_fd")
    return numbers


def test_neither_data_nor_results_of_blocks_pass_the_scheduler(client, tmp_path, passed):
    """Workers make blocks of 20 curves and of 5,000, fit them, and write the results into a file."""
    x = np.linspace(0.0, 5.0, 40)
    blocks = 8

    def make_block(block_id):
        rates = np.random.default_rng(block_id[0]).uniform(0.5, 2.0, (curves, 1))
        return 3.0 * np.exp(-rates * x)

    class Stored:
        def __init__(self, path):
            self.path = path

        def __setitem__(self, place, block):
            np.load(self.path, mmap_mode="r+")[place] = block

    counts = []
    for curves in (20, 5000):
        path = tmp_path / f"{curves}.npy"
        np.save(path, np.zeros((blocks * curves, 2)))
        cube = da.map_blocks(make_block, chunks=((curves,) * blocks, (len(x),)), dtype=float, meta=np.empty((0, 0)))
        fits = popfit.dask.fit_blocks(cube, 1, x, "a*exp(-k*x)", [1.0, 1.0])
        passed.clear()
        # a file that workers write, and results that stay with them
        da.store(fits.parameters, Stored(path), lock=False)
        kept = client.persist(fits.errors)
        distributed.wait(kept)
        counts.append(sum(passed))
        values = np.concatenate([make_block((block,)) for block in range(blocks)])
        wanted = popfit.CurveFitter("a*exp(-k*x)").fit(x, values, [1.0, 1.0]).parameters
        np.testing.assert_array_equal(np.load(path), wanted)
    # data of 12.8 MB, and results of 0.64 MB twice; bytes that client and scheduler exchange are counted at both ends
    assert max(counts) < 400_000 and counts[1] < 2 * counts[0], counts


def test_a_model_passes_the_scheduler_once(client, passed):
    """A template of 1.6 MB, which 16 blocks are fitted with."""
    x = np.linspace(0.0, 1.0, 30)
    grid = np.linspace(-0.5, 1.5, 200_000)
    spline = popfit.Spline(np.exp(-grid), first=grid[0], step=grid[1] - grid[0])
    cube = da.ones((16, len(x)), chunks=(1, -1))
    fits = popfit.dask.fit_blocks(cube, 1, x, spline, [1.0] * len(spline.parameters))
    passed.clear()
    distributed.wait(client.persist(fits.chi2))
    counted = sum(passed)
    # from the client, to the scheduler, to a worker or two; client and scheduler are in this process
    assert counted < 5 * grid.nbytes, counted / grid.nbytes


def test_a_full_disk_on_one_worker_costs_nothing(files, client, tmp_path):
    """The system refuses what one of two workers writes, in the middle of a part: the other one fits all of them."""
    names, one = files
    plan = popfit.surveys.plan(MODEL, names, tmp_path / "run", part_rows=16)

    def fill_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))

    def empty_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    workers = sorted(client.scheduler_info()["workers"])
    client.run(fill_disk, workers=workers[:1])
    fitted = popfit.dask.fit_plan(plan, client=client, device="cpu")
    assert sorted(part.part for part in fitted) == list(range(len(plan)))
    assert not any(plan.has_failed(part, 1) for part in range(len(plan)))
    assert {name.partition("-")[0] for name in os.listdir(plan.folder)} == {"_manifest.json", "part"}
    plan.merge(tmp_path / "merged.parquet")
    assert (tmp_path / "merged.parquet").read_bytes() == one
    # no worker can write: that is an error, and the same call goes on when there is room again
    plan = popfit.surveys.plan(MODEL, names, tmp_path / "full", part_rows=64)
    client.run(fill_disk)
    with pytest.raises(popfit.Error, match=r"no worker can fit parts(.|\n)*File too large"):
        popfit.dask.fit_plan(plan, client=client, device="cpu")
    assert len(plan.missing()) == len(plan) and not any(plan.has_failed(part, 1) for part in range(len(plan)))
    client.run(empty_disk)
    assert len(popfit.dask.fit_plan(plan, client=client, device="cpu")) == len(plan)


#: Fits on a cluster with a worker for each adapter, and prints what the workers see and which device made which rows.
SURVEY_ON_ADAPTERS = """
import json, sys
import distributed, popfit, popfit.dask

def see_devices():
    return [one.name for one in popfit.devices() if one.kind != "cpu"]

if __name__ == "__main__":
    model, file, output, folder, same = sys.argv[1:]
    adapters = [one for one in popfit.devices() if one.software]
    devices = [adapters[0].selector, adapters[0]] if same else None
    with popfit.dask.LocalGPUCluster(
        devices, software=True, dashboard_address=None, local_directory=folder, env={"POPFIT_TEST": "1"}
    ) as cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(len(cluster.adapters), timeout=60)
        seen = client.run(see_devices)
        workers = client.scheduler_info()["workers"].values()
        popfit.dask.fit(
            model, file, output, client=client, device="gpu", part_rows=16, starts=1,
            resources={"GPU": 1}, mixed_devices=not same,
        )
        try:
            cluster.scale(3)
        except popfit.InputError as error:
            message = str(error)
    metadata = popfit.FitTable.read(output).metadata
    print(json.dumps({
        "adapters": [one.name for one in cluster.adapters.values()],
        "seen": sorted(seen.values()),
        "threads": [one["nthreads"] for one in workers],
        "resources": [one["resources"] for one in workers],
        "message": message,
        "device": metadata["device"],
    }))
"""


@pytest.mark.parametrize("visible", ["1,0", "1"])
def test_each_worker_has_its_adapter(files, tmp_path, visible):
    """Two software adapters, or the same one twice where there is no second driver or only one is to be seen."""
    missing = [driver for driver in DRIVERS if not os.path.exists(driver)]
    if DRIVERS[0] in missing:
        assert not os.environ.get("CI"), f"{DRIVERS[0]} is missing"
        pytest.skip(f"{DRIVERS[0]} is missing")
    is_same = bool(missing) or visible == "1"
    (tmp_path / "fit.py").write_text(SURVEY_ON_ADAPTERS)
    environment = {
        **os.environ,
        "VK_DRIVER_FILES": ":".join(driver for driver in DRIVERS if driver not in missing),
        "POPFIT_VISIBLE_DEVICES": "0" if missing else visible,
    }
    output = tmp_path / "results.parquet"
    arguments = [MODEL, files[0][0], output, tmp_path / "dask", "same" if is_same else ""]
    ended = subprocess.run(
        [sys.executable, tmp_path / "fit.py", *arguments], env=environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert len(told["adapters"]) == 2 and len(set(told["adapters"])) == (1 if is_same else 2)
    assert told["seen"] == sorted([name] for name in told["adapters"])
    assert told["threads"] == [1, 1] and told["resources"] == [{"GPU": 1.0}] * 2
    assert "each of the 2 adapters has its worker" in told["message"]
    assert all(name in told["device"] for name in told["adapters"]) and "cpu" not in told["device"]


def test_adapters_that_are_not_there(monkeypatch):
    """What a cluster says without a GPU, and of adapters that it is asked for and that are not there."""
    software = popfit.Device("gpu:0", "llvmpipe, 256 bits", "software", True, None, None, "Vulkan", "", "", "")
    first = dataclasses.replace(software, name="Card", kind="discrete", software=False, pci="0000:41:00.0")
    second = dataclasses.replace(first, selector="gpu:1", pci="0000:81:00.0")
    again = dataclasses.replace(first, selector="gpu:2", backend="Gl", pci=None)
    cpu = dataclasses.replace(software, selector="cpu", name="cpu", kind="cpu", software=False)
    cluster = popfit._gpu_cluster

    def show(*present):
        monkeypatch.setattr(cluster, "list_devices", lambda: popfit.Devices("cpu", "", ["no driver"], [cpu, *present]))

    def choose(devices=None, software=False):
        return cluster._choose_adapters(cluster.list_devices(), devices, software)

    show()
    with pytest.raises(popfit.DeviceError, match=r"sees no discrete or integrated GPU\. no driver"):
        popfit.dask.LocalGPUCluster()
    show(software)
    with pytest.raises(popfit.DeviceError, match=r"llvmpipe, 256 bits, software\): give software=True"):
        popfit.dask.LocalGPUCluster()
    assert choose(software=True) == choose(["gpu:LLVM"]) == [software]
    show(first, second, again, dataclasses.replace(software, selector="gpu:3"))
    assert choose() == choose(["gpu:0", second]) == [first, second]  # the third is the first, by another interface
    assert choose(["gpu:pci=00000000:81:00.0", "gpu:pci=41:00.0"]) == [second, first]
    assert choose("gpu:1") == [second]
    wrong = ["gpu:4", "gpu:pci=82:00.0", "gpu:pci=", "gpu", "cpu", "gpu:nothing", "gpu:", 1, cpu]
    for one in wrong:
        with pytest.raises(popfit.InputError, match="devices"):
            popfit.dask.LocalGPUCluster([one])
    with pytest.raises(popfit.InputError, match="empty list"):
        popfit.dask.LocalGPUCluster([])
    for option in ({"n_workers": 2}, {"threads_per_worker": 2}):
        with pytest.raises(TypeError, match="no argument"):
            popfit.dask.LocalGPUCluster(**option)
    # the entries of the workers' lists
    seen = [first, second, software]
    assert [cluster._visible_entry(one, seen, "") for one in (second, software)] == ["0000:81:00.0", "0"]
    only = [dataclasses.replace(software, selector="gpu:1"), software]
    assert [cluster._visible_entry(one, only, " 3, swift") for one in only] == ["3", "swift"]
    with pytest.raises(popfit.InputError, match="name each adapter once"):
        cluster._visible_entry(software, [software], "0,0")
