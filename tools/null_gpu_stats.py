#!/usr/bin/env python3
"""Compiles kernels for GPUs that are not there, and says what the compiler makes of them.

usage: null_gpu_stats.py FOLDER [--check TABLE | --write TABLE]

FOLDER has NAME.spv, with the entry point main, and beside it NAME.wgsl, whose bindings are storage buffers. Mesa's
driver for AMD has a null device, which compiles for a real instruction set with the real compiler, and runs nothing.
It tells registers, spills, instructions, and its estimate of the inverse throughput (cycles a wave).

--check compares them with a table, which is a file of the repository, and fails where a kernel is missing from it or
has other numbers. Other versions of Mesa give other numbers: then only kernels are found that spill vector registers
or use scratch memory, and do not in the table. --write makes the table.

Needed are the package vulkan of PyPI, and Debian's mesa-vulkan-drivers and libvulkan1.
"""

import argparse
import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

#: Instruction sets: RDNA3 and RDNA2.
FAMILIES = ["gfx1100", "navi21"]
#: Statistics by their names in Mesa's output.
STATISTICS = {
    "vgprs": "VGPRs",
    "spilled_vgprs": "Spilled VGPRs",
    "scratch": "Scratch size",
    "waves": "Subgroups per SIMD",
    "instructions": "Instructions",
    "inverse_throughput": "Inverse Throughput",
}
COLUMNS = ["mesa", "family", "kernel", *STATISTICS]


def compile_all(folder):
    """Compiles every kernel of a folder on the null device, whose driver prints the statistics."""
    import vulkan as vk

    version = vk.VK_MAKE_VERSION(1, 3, 0)
    application = vk.VkApplicationInfo(pApplicationName="popfit", applicationVersion=1, apiVersion=version)
    instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=application), None)
    adapter = vk.vkEnumeratePhysicalDevices(instance)[0]
    driver = vk.vkGetPhysicalDeviceProperties(adapter).driverVersion
    print(f"DRIVER {driver >> 22}.{driver >> 12 & 0x3FF}.{driver & 0xFFF}", flush=True)
    queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=0, queueCount=1, pQueuePriorities=[1.0])
    device = vk.vkCreateDevice(adapter, vk.VkDeviceCreateInfo(pQueueCreateInfos=[queue]), None)
    for path in sorted(folder.glob("*.spv")):
        code = path.read_bytes()
        binding = {
            "descriptorType": vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            "descriptorCount": 1,
            "stageFlags": vk.VK_SHADER_STAGE_COMPUTE_BIT,
        }
        count = len(re.findall(r"@binding\(", path.with_suffix(".wgsl").read_text()))
        bindings = [vk.VkDescriptorSetLayoutBinding(binding=i, **binding) for i in range(count)]
        buffers = vk.vkCreateDescriptorSetLayout(device, vk.VkDescriptorSetLayoutCreateInfo(pBindings=bindings), None)
        layout = vk.vkCreatePipelineLayout(device, vk.VkPipelineLayoutCreateInfo(pSetLayouts=[buffers]), None)
        module = vk.vkCreateShaderModule(device, vk.VkShaderModuleCreateInfo(codeSize=len(code), pCode=code), None)
        stage = vk.VkPipelineShaderStageCreateInfo(
            stage=vk.VK_SHADER_STAGE_COMPUTE_BIT, module=module, pName="main"
        )
        print("KERNEL", path.stem, flush=True)
        pipeline = vk.VkComputePipelineCreateInfo(stage=stage, layout=layout)
        vk.vkCreateComputePipelines(device, None, 1, [pipeline], None)


def statistics(folder, family):
    """Returns a row of the table for each kernel, as this family's compiler makes it."""
    driver = next(Path("/usr/share/vulkan/icd.d").glob("radeon_icd*.json"), None)
    if driver is None:
        sys.exit("null_gpu_stats.py: Mesa's Vulkan driver for AMD is not installed (mesa-vulkan-drivers)")
    environment = {
        **os.environ,
        "RADV_FORCE_FAMILY": family,
        "RADV_DEBUG": "shaderstats,nocache",
        "VK_DRIVER_FILES": str(driver),
        "VK_ICD_FILENAMES": str(driver),
    }
    command = [sys.executable, __file__, str(folder), "--compile"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(done.stdout)
    first, *parts = done.stdout.split("KERNEL ")
    mesa = re.search(r"^DRIVER (.*)$", first, re.M)[1]
    rows = []
    for part in parts:
        numbers = {name: re.search(rf"^{said}: (\d+)", part, re.M)[1] for name, said in STATISTICS.items()}
        rows.append({"mesa": mesa, "family": family, "kernel": part.split()[0], **numbers})
    return rows


def read_table(path):
    """Returns the rows of a table."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def as_text(rows):
    """Returns rows as the text of a table."""
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def faults(rows, table):
    """Returns what differs from the table, a line for each kernel.

    >>> known = {"mesa": "1.0.0", "family": "navi21", "kernel": "step", **dict.fromkeys(STATISTICS, "7")}
    >>> faults([known], [known])
    []
    >>> faults([known | {"instructions": "9"}], [known])
    ['navi21 step: instructions 9, not 7']
    >>> faults([known | {"kernel": "new"}], [known])
    ['navi21 new: not in the table', 'navi21 step: in the table alone']
    >>> other = known | {"mesa": "2.0.0", "instructions": "9"}
    >>> faults([other], [known])
    []
    >>> faults([other], [known | {"scratch": "0"}])
    ['navi21 step: scratch 7, not 0']
    """
    known = {(row["family"], row["kernel"]): row for row in table}
    found = []
    for row in rows:
        name = f"{row['family']} {row['kernel']}"
        wanted = known.pop((row["family"], row["kernel"]), None)
        if wanted is None:
            found.append(f"{name}: not in the table")
            continue
        if row["mesa"] == wanted["mesa"]:
            differing = [key for key in STATISTICS if row[key] != wanted[key]]
        else:
            differing = [key for key in ("spilled_vgprs", "scratch") if row[key] != "0" and wanted[key] == "0"]
        if differing:
            found.append(f"{name}: " + ", ".join(f"{key} {row[key]}, not {wanted[key]}" for key in differing))
    return found + [f"{family} {kernel}: in the table alone" for family, kernel in known]


def main():
    """Prints the table of a folder's kernels, and checks or writes a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", type=Path, metavar="TABLE")
    parser.add_argument("--write", type=Path, metavar="TABLE")
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compile:
        compile_all(arguments.folder)
        return
    rows = [row for family in FAMILIES for row in statistics(arguments.folder, family)]
    if not rows:
        sys.exit(f"null_gpu_stats.py: {arguments.folder} has no .spv files")
    if arguments.write:
        arguments.write.write_text(as_text(rows))
    elif arguments.check:
        found = faults(rows, read_table(arguments.check))
        if found:
            lines = "\n  ".join(found)
            sys.exit(f"{arguments.check}: the kernels are others (--write makes the table anew):\n  {lines}")
        print(f"{len(rows)} kernels as in {arguments.check}")
    else:
        print(as_text(rows), end="")


if __name__ == "__main__":
    main()
