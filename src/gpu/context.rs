//! An open device and its failures. Every buffer, submission and wait goes through it.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::adapter;
use super::cache::{self, Cache};
use super::choice::Kernels;
use super::counts::CallCounts;
use super::faults::{Call, Fault, Faults};
use super::fusion::{AllowedFusions, Fused, GUARANTEED_STORAGE_BUFFERS, MAX_STORAGE_BUFFERS};
use super::pipelines::CompiledKernels;
use super::{known_answer, trusted};
use crate::error::{Error, Result};
use crate::kernels::product::{Products, Variant};
use crate::recording::Kind;

/// Interval at which a device that failed is asked whether it was lost.
const LOSS_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum number of such questions.
const MAX_LOSS_POLLS: u32 = 20;
/// Default time limit of a submission on a GPU.
const SUBMISSION_TIME_LIMIT: Duration = Duration::from_secs(120);
/// Default time limit of a submission on a software adapter, which may share its processor with everything else.
const SOFTWARE_SUBMISSION_TIME_LIMIT: Duration = Duration::from_secs(600);

/// An open device.
#[derive(Debug)]
pub(super) struct GpuContext {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub name: String,
    pub software: bool,
    pub limits: wgpu::Limits,
    /// Default memory for a population, in bytes.
    pub memory: u64,
    pub cache: Option<Cache>,
    pub adapter: wgpu::Adapter,
    pub info: wgpu::AdapterInfo,
    /// The kernels of its class, or those that the environment names.
    pub kernels: Kernels,
    /// The kernel of f32 products, once it has been tested.
    pub product: OnceLock<Variant>,
    /// The kernel of f16 products, once it has been tested.
    pub halves: OnceLock<Variant>,
    /// Choice of the stages that share a kernel.
    pub fused: OnceLock<Fused>,
    pub options: Options,
    pub compiled: CompiledKernels,
    pub counts: Arc<CallCounts>,
    /// The first failure that no error scope caught.
    failure: Arc<Mutex<Option<DeviceFailure>>>,
    /// Whether a test has injected an out-of-memory fault at the creation of a buffer.
    is_short_of_memory: AtomicBool,
}

/// Options that a device keeps when it is made anew.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    /// Time limit of a submission in milliseconds; 0 for the default.
    pub limit: Arc<AtomicU64>,
    pub faults: Option<Arc<Faults>>,
    /// Whether the device is opened with cooperative matrices, where the adapter has them.
    pub cooperative: bool,
    /// Whether populations begin with NaN in all buffers.
    pub poison: bool,
}

/// Reason why a device cannot be used any more.
#[derive(Clone, Debug)]
enum DeviceFailure {
    Lost(String),
    OutOfMemory(String),
    Failed(String),
}

impl GpuContext {
    /// Opens an adapter as a device, with the features and limits that popfit uses.
    pub fn open(adapter: wgpu::Adapter, options: Options) -> Result<GpuContext> {
        let info = adapter.get_info();
        let kernels = Kernels::for_adapter(&info)?;
        let name = format!("gpu:{}", info.name);
        let limits = required_limits(&adapter);
        let mut descriptor = wgpu::DeviceDescriptor {
            label: Some("popfit"),
            required_features: adapter.features()
                & (wgpu::Features::PIPELINE_CACHE | wgpu::Features::TIMESTAMP_QUERY),
            required_limits: limits.clone(),
            ..Default::default()
        };
        if options.cooperative && adapter::matrix_kernel(&adapter).is_some() {
            descriptor.required_features |= adapter::MATRIX_FEATURES;
            descriptor.experimental_features = trusted::experimental_features();
        }
        let opened = {
            let _lock = adapter::lock_drivers();
            pollster::block_on(adapter.request_device(&descriptor))
        };
        let (device, queue) = opened.map_err(|e| Error::Device {
            device: name.clone(),
            message: e.to_string(),
        })?;
        let failure = register_failure_callbacks(&device);
        let software = info.device_type == wgpu::DeviceType::Cpu;
        let memory = adapter::default_memory(info.device_type);
        let cache = cache::cache_folder().and_then(|folder| Cache::open(&device, &info, &folder));
        Ok(GpuContext {
            device,
            queue,
            name,
            software,
            limits,
            memory,
            cache,
            adapter,
            info,
            kernels,
            product: OnceLock::new(),
            halves: OnceLock::new(),
            fused: OnceLock::new(),
            options,
            compiled: CompiledKernels::default(),
            counts: Arc::default(),
            failure,
            is_short_of_memory: AtomicBool::new(false),
        })
    }

    /// Opens the same adapter again as a fresh device, with the same options and choice of kernels.
    pub fn reopen(&self) -> Result<GpuContext> {
        // After a loss the adapter itself may be stale, and must be found anew.
        let fresh = GpuContext::open(self.adapter.clone(), self.options.clone()).or_else(|_| {
            GpuContext::open(adapter::find_again(&self.info)?, self.options.clone())
        })?;
        Ok(GpuContext {
            product: self.product.clone(),
            halves: self.halves.clone(),
            fused: self.fused.clone(),
            counts: self.counts.clone(),
            ..fresh
        })
    }

    /// Opens the same adapter again, with cooperative matrices switched on where it has them.
    pub fn with_matrices(&self) -> Result<GpuContext> {
        let options = Options {
            cooperative: true,
            ..self.options.clone()
        };
        let fresh = GpuContext::open(self.adapter.clone(), options)?;
        Ok(GpuContext {
            product: self.product.clone(),
            fused: self.fused.clone(),
            counts: self.counts.clone(),
            ..fresh
        })
    }

    /// Returns the kernel of f32 matrix products: that of the adapter's class, or the plain one where that computes
    /// wrongly.
    pub fn product_kernel(&self) -> Variant {
        *self.product.get_or_init(|| {
            let class_kernel = self.kernels.product;
            if known_answer::is_kernel_right(self, class_kernel, Kind::Float) {
                class_kernel
            } else {
                Variant::Registers
            }
        })
    }

    /// Returns the kernel of f16 matrix products: cooperative matrices where they are right, else as for f32.
    fn half_product_kernel(&self) -> Variant {
        *self.halves.get_or_init(|| {
            self.matrix_kernel()
                .filter(|kernel| {
                    !self.software && known_answer::is_kernel_right(self, *kernel, Kind::Half)
                })
                .unwrap_or_else(|| self.product_kernel())
        })
    }

    /// Returns the kernels of f32 and of f16 matrix products; without `of_halves` both are that of f32.
    pub fn product_kernels(&self, of_halves: bool) -> Products {
        let full = self.product_kernel();
        Products {
            full,
            halves: if of_halves {
                self.half_product_kernel()
            } else {
                full
            },
        }
    }

    /// Returns which stages may share a kernel on this device: the fusions of its class, and its limits.
    pub fn allowed_fusions(&self) -> AllowedFusions {
        self.limit_fusions(*self.fused.get_or_init(|| self.kernels.fused))
    }

    /// Returns these fusions of kernels together with the device's limits, which may forbid some of them.
    pub fn limit_fusions(&self, fused: Fused) -> AllowedFusions {
        AllowedFusions {
            fused,
            storage_buffers: self.limits.max_storage_buffers_per_shader_stage,
            workgroup_bytes: self.limits.max_compute_workgroup_storage_size,
        }
    }

    /// Returns the product kernel of cooperative matrices if the device was opened with them, else `None`.
    pub fn matrix_kernel(&self) -> Option<Variant> {
        adapter::matrix_kernel(&self.adapter)
            .filter(|_| self.device.features().contains(adapter::MATRIX_FEATURES))
    }

    /// Returns whether the device can record when a kernel begins and ends.
    pub fn has_timestamps(&self) -> bool {
        self.device
            .features()
            .contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    /// Makes an [`Error::Device`] with this device's name and the message.
    pub fn failure(&self, message: impl Into<String>) -> Error {
        Error::Device {
            device: self.name.clone(),
            message: message.into(),
        }
    }

    /// Makes an [`Error::OutOfMemory`] with this device's name and the message.
    pub fn too_large(&self, message: impl Into<String>) -> Error {
        Error::OutOfMemory {
            device: self.name.clone(),
            message: message.into(),
        }
    }

    /// Makes an [`Error::DeviceUntrusted`], which says that this device's results cannot be trusted, with the message.
    pub fn untrusted(&self, message: impl Into<String>) -> Error {
        Error::DeviceUntrusted {
            device: self.name.clone(),
            message: message.into(),
        }
    }

    /// Fails if the device was lost or a command has failed since it was opened.
    pub fn check_health(&self) -> Result<()> {
        if let Some(DeviceFailure::Failed(_)) = self.first_failure() {
            self.await_loss_report();
        }
        match self.first_failure() {
            Some(DeviceFailure::Lost(message)) => Err(Error::DeviceLost {
                device: self.name.clone(),
                message,
            }),
            Some(DeviceFailure::OutOfMemory(message)) => Err(self.too_large(message)),
            Some(DeviceFailure::Failed(message)) => Err(self.failure(message)),
            None => Ok(()),
        }
    }

    /// Returns the failure that was recorded, if any.
    fn first_failure(&self) -> Option<DeviceFailure> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Polls the device for a short time after a failure, so that its callback can report a lost device. On a lost
    /// device commands fail first, and the loss is reported when no work is left, or a moment later.
    fn await_loss_report(&self) {
        for _ in 0..MAX_LOSS_POLLS {
            self.poll_device(None, None);
            if matches!(self.first_failure(), Some(DeviceFailure::Lost(_))) {
                return;
            }
            std::thread::sleep(LOSS_POLL_INTERVAL);
        }
    }

    /// Records a failure of the device, so that the next [`GpuContext::check_health`] fails.
    fn record_failure(&self, failure: DeviceFailure) {
        record_first_failure(&self.failure, failure);
    }

    /// Returns `honest`, the tolerance at which fits end, unless a test has injected a fault that changes it.
    pub fn tolerance(&self, honest: f64) -> f64 {
        self.options
            .faults
            .as_ref()
            .map_or(honest, |faults| faults.tolerance(honest))
    }

    /// Counts a call to the device, and returns the fault that a test has injected for it, if any.
    pub fn fault_at_call(&self, call: Call) -> Option<Fault> {
        let fault = self.options.faults.as_ref()?.fault_at_call(call)?;
        if fault == Fault::Lost && call != Call::Submission {
            self.device.destroy();
        }
        Some(fault)
    }

    /// Creates a buffer; an injected out-of-memory fault only marks the device as short of memory.
    pub fn create_buffer(&self, descriptor: &wgpu::BufferDescriptor<'_>) -> wgpu::Buffer {
        if self.fault_at_call(Call::Buffer) == Some(Fault::OutOfMemory) {
            self.is_short_of_memory.store(true, Ordering::Relaxed);
        }
        self.counts.buffers.add(descriptor.size);
        self.device.create_buffer(descriptor)
    }

    /// Writes bytes to a buffer from `offset` on, before whatever is submitted next.
    pub fn write_buffer(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        self.counts.uploads.add(bytes.len() as u64);
        self.queue.write_buffer(buffer, offset, bytes);
    }

    /// Returns memory for the first bytes of a buffer, which are written to it before what is submitted thereafter.
    pub fn staging_memory(
        &self,
        buffer: &wgpu::Buffer,
        bytes: u64,
    ) -> Result<wgpu::QueueWriteBufferView> {
        self.counts.uploads.add(bytes);
        let view = wgpu::BufferSize::new(bytes)
            .and_then(|size| self.queue.write_buffer_with(buffer, 0, size));
        view.ok_or_else(|| self.failure(format!("no memory from which to copy {bytes} bytes")))
    }

    /// Records a copy of the first `bytes` bytes of a buffer to `offset` of another one.
    pub fn record_buffer_copy(
        &self,
        commands: &mut wgpu::CommandEncoder,
        source: &wgpu::Buffer,
        target: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
    ) {
        self.counts.copies.add(bytes);
        commands.copy_buffer_to_buffer(source, 0, target, offset, Some(bytes));
    }

    /// Submits the commands to the queue, then applies the fault that a test has injected at this call, if any. Returns
    /// the submission's index, with which [`wait_for`](Self::wait_for) waits for it.
    pub fn submit(&self, commands: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
        let injected_fault = self.fault_at_call(Call::Submission);
        self.counts.submissions.add(1);
        let submission = self.queue.submit([commands.finish()]);
        match injected_fault {
            Some(Fault::Lost) => self.device.destroy(),
            Some(Fault::OutOfMemory) => {
                self.record_failure(DeviceFailure::OutOfMemory("injected".into()))
            }
            _ => {}
        }
        submission
    }

    /// Submits what has been written to buffers, so that the device copies it while the host goes on.
    pub fn submit_writes(&self) {
        self.counts.submissions.add(1);
        self.queue.submit([]);
    }

    /// Returns how long a submission may take before the device counts as lost.
    pub fn time_limit(&self) -> Duration {
        match self.options.limit.load(Ordering::Relaxed) {
            0 if self.software => SOFTWARE_SUBMISSION_TIME_LIMIT,
            0 => SUBMISSION_TIME_LIMIT,
            milliseconds => Duration::from_millis(milliseconds),
        }
    }

    /// Waits until a submission is done, or all submissions if it is `None`. In a browser it returns at once.
    /// Fails with [`Error::DeviceLost`] when the device takes longer than the limit.
    pub fn wait_for(
        &self,
        submission: Option<wgpu::SubmissionIndex>,
        injected_fault: Option<Fault>,
    ) -> Result<()> {
        self.counts.waits.add(1);
        self.poll_device(submission, injected_fault);
        self.check_health()
    }

    /// Waits for submitted work up to the time limit, and records a loss, a time-out or an error of the device.
    fn poll_device(
        &self,
        submission_index: Option<wgpu::SubmissionIndex>,
        injected_fault: Option<Fault>,
    ) {
        let poll_type = wgpu::PollType::Wait {
            submission_index,
            timeout: Some(self.time_limit()),
        };
        // wgpu panics if the device is lost while it waits.
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| match injected_fault {
            Some(Fault::Crash) => panic::resume_unwind(Box::new("injected")),
            Some(Fault::Stall) => Err(wgpu::PollError::Timeout),
            _ => self.device.poll(poll_type),
        }));
        match outcome {
            Ok(Ok(_)) => {}
            Ok(Err(wgpu::PollError::Timeout)) => self.mark_unresponsive(),
            Ok(Err(error)) => self.record_failure(DeviceFailure::Failed(error.to_string())),
            Err(_) => self.record_failure(DeviceFailure::Lost(
                "lost while the host waited for it".into(),
            )),
        }
    }

    /// Marks the device as lost, because it did not answer in time.
    pub fn mark_unresponsive(&self) {
        let message = format!("no answer within {} s", self.time_limit().as_secs_f64());
        self.record_failure(DeviceFailure::Lost(message));
        // wgpu waits without end when it drops the queue, so we leak it.
        std::mem::forget(self.queue.clone());
    }

    /// Runs `create`, and returns errors that the device reports meanwhile as `Err`.
    pub fn catch_errors<T>(&self, create: impl FnOnce() -> Result<T>) -> Result<T> {
        let filters = [
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Internal,
            wgpu::ErrorFilter::Validation,
        ];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let result = create();
        let mut caught = None;
        for scope in scopes.into_iter().rev() {
            let error = pollster::block_on(scope.pop());
            caught = caught.or(error);
        }
        if self.is_short_of_memory.swap(false, Ordering::Relaxed) {
            return Err(self.too_large("injected"));
        }
        if caught.is_some() {
            self.await_loss_report();
            self.check_health()?;
        }
        match caught {
            None => self.check_health().and(result),
            Some(wgpu::Error::OutOfMemory { source }) => Err(self.too_large(source.to_string())),
            Some(error) => result.and(Err(self.failure(error.to_string()))),
        }
    }
}

/// Records the first failure of the device; only a loss replaces an earlier failure.
fn record_first_failure(recorded: &Mutex<Option<DeviceFailure>>, failure: DeviceFailure) {
    let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
    let loss_replaces = matches!(
        (&*recorded, &failure),
        (Some(DeviceFailure::Failed(_)), DeviceFailure::Lost(_))
    );
    if recorded.is_none() || loss_replaces {
        *recorded = Some(failure);
    }
}

/// Returns the limits to ask for: WebGPU's defaults, but buffers as large and as many as the adapter allows.
fn required_limits(adapter: &wgpu::Adapter) -> wgpu::Limits {
    let adapter_limits = adapter.limits();
    let storage_buffers = adapter_limits
        .max_storage_buffers_per_shader_stage
        .clamp(GUARANTEED_STORAGE_BUFFERS, MAX_STORAGE_BUFFERS);
    wgpu::Limits {
        max_storage_buffer_binding_size: adapter_limits.max_storage_buffer_binding_size,
        max_buffer_size: adapter_limits.max_buffer_size,
        max_storage_buffers_per_shader_stage: storage_buffers,
        ..wgpu::Limits::default()
    }
}

/// Registers callbacks that record a device's loss and its uncaught errors in the returned cell.
fn register_failure_callbacks(device: &wgpu::Device) -> Arc<Mutex<Option<DeviceFailure>>> {
    let recorded = Arc::new(Mutex::new(None));
    let of_loss = Arc::clone(&recorded);
    device.set_device_lost_callback(move |reason, message| {
        let message = format!("lost ({reason:?}): {message}");
        record_first_failure(&of_loss, DeviceFailure::Lost(message));
    });
    let of_error = Arc::clone(&recorded);
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        let failure = match &error {
            wgpu::Error::OutOfMemory { source } => DeviceFailure::OutOfMemory(source.to_string()),
            _ => DeviceFailure::Failed(error.to_string()),
        };
        record_first_failure(&of_error, failure);
    }));
    recorded
}
