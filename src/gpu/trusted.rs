//! All calls that wgpu marks unsafe, each with the reason why it is safe here. Only runs in mixed precision open a
//! device with wgpu's experimental features.

/// Creates a pipeline cache from what an earlier run's driver has written, or an empty one.
#[expect(
    unsafe_code,
    reason = "wgpu asks that the data be its own: they carry the checksum that `Cache::save` wrote"
)]
pub(super) fn pipeline_cache(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    // Data of another version of wgpu or of the driver give an empty cache.
    let descriptor = wgpu::PipelineCacheDescriptor {
        label: Some("popfit"),
        data,
        fallback: true,
    };
    unsafe { device.create_pipeline_cache(&descriptor) }
}

/// Returns the token that enables wgpu's experimental features, here cooperative matrices.
#[expect(
    unsafe_code,
    reason = "asked for mixed precision alone, and no product is left to them that the host has not compared"
)]
pub(super) fn experimental_features() -> wgpu::ExperimentalFeatures {
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
