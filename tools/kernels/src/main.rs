//! Translates the kernels of a folder (`popfit-bench kernels` writes them) to SPIR-V, HLSL and Metal's language by the
//! library that wgpu uses, and fails unless all of them can be.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use naga::back::{hlsl, msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage};

/// Translates every `.wgsl` file of the folder that is the only argument.
fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("usage: popfit-kernels FOLDER")?;
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wgsl") {
            translate(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            count += 1;
        }
    }
    println!("{count} kernels in SPIR-V, HLSL and Metal's language");
    if count == 0 { Err("there are no .wgsl files".into()) } else { Ok(()) }
}

/// Translates a kernel to the languages of wgpu's backends, with the checks that wgpu has them write.
fn translate(path: &Path) -> Result<(), Box<dyn Error>> {
    let module = naga::front::wgsl::parse_str(&fs::read_to_string(path)?)?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::default()).validate(&module)?;
    let words = as_spirv(&module, &info)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    fs::write(path.with_extension("spv"), bytes)?;
    fs::write(path.with_extension("hlsl"), as_hlsl(&module, &info)?)?;
    fs::write(path.with_extension("metal"), as_metal(&module, &info)?)?;
    Ok(())
}

/// Returns the kernel's SPIR-V. The options are those of wgpu on a driver of Vulkan 1.3 with `robustBufferAccess2`
/// (wgpu-hal 30, `vulkan/adapter.rs`): places in arrays of a kernel's own are clamped, and loops are bounded. popfit
/// does not have workgroup memory cleared.
fn as_spirv(module: &Module, info: &ModuleInfo) -> Result<Vec<u32>, spv::Error> {
    let (index, buffer) = (BoundsCheckPolicy::Restrict, BoundsCheckPolicy::Unchecked);
    let options = spv::Options {
        lang_version: (1, 6),
        flags: spv::WriterFlags::LABEL_VARYINGS | spv::WriterFlags::FORCE_POINT_SIZE,
        bounds_check_policies: BoundsCheckPolicies { index, buffer, ..BoundsCheckPolicies::default() },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        ..spv::Options::default()
    };
    let entry = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".into() };
    spv::write_vec(module, info, &options, Some(&entry))
}

/// Returns the kernel in HLSL, for DX12.
fn as_hlsl(module: &Module, info: &ModuleInfo) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    let (options, entry) = (hlsl::Options::default(), hlsl::PipelineOptions::default());
    let written = hlsl::Writer::new(&mut text, &options, &entry).write(module, info, None)?;
    written.entry_point_names.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(text)
}

/// Returns the kernel in Metal's language.
fn as_metal(module: &Module, info: &ModuleInfo) -> Result<String, Box<dyn Error>> {
    let options = msl::Options { lang_version: (2, 4), ..msl::Options::default() };
    let (text, translation) = msl::write_string(module, info, &options, &msl::PipelineOptions::default())?;
    // an entry point that cannot be written has an error of its own, and the rest of the text goes on
    translation.entry_point_names.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(text)
}
