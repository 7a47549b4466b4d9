//! An open device, and what went wrong on it: every buffer, submission and wait goes through here.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::adapter;
use super::cache::{self, Cache};
use super::choice::Kernels;
use super::counts::Counts;
use super::faults::{Call, Fault, Faults};
use super::fusion::{Allowed, Fused, MOST_BUFFERS, PROMISED_BUFFERS};
use super::pipelines::Compiled;
use super::{known_answer, trusted};
use crate::error::{Error, Result};
use crate::kernels::product::{Products, Variant};
use crate::recording::Kind;

/// Interval at which a device that failed is asked whether it was lost, and the number of times.
const MOMENT: Duration = Duration::from_millis(2);
const MOMENTS: u32 = 20;
/// Time limit of a submission, unless told otherwise. Software adapters may share their processor with everything else.
const LIMIT: Duration = Duration::from_secs(120);
const LIMIT_OF_SOFTWARE: Duration = Duration::from_secs(600);

/// An open device.
#[derive(Debug)]
pub(super) struct Context {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub name: String,
    pub software: bool,
    pub limits: wgpu::Limits,
    /// Default bytes for a population.
    pub memory: u64,
    pub cache: Option<Cache>,
    pub adapter: wgpu::Adapter,
    pub info: wgpu::AdapterInfo,
    /// The kernels of its class, or those that the environment names.
    pub kernels: Kernels,
    /// The kernels of products of numbers and of halves, once they have been tested.
    pub product: OnceLock<Variant>,
    pub halves: OnceLock<Variant>,
    /// Stages that share a kernel.
    pub fused: OnceLock<Fused>,
    pub options: Options,
    pub compiled: Compiled,
    pub counts: Arc<Counts>,
    /// The first error that no scope caught.
    broken: Arc<Mutex<Option<Broken>>>,
    /// A test has let a buffer meet the end of the memory.
    is_short: AtomicBool,
}

/// Options that a device keeps when it is made anew.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    /// Milliseconds that a submission may take, in place of the usual; 0 for these.
    pub limit: Arc<AtomicU64>,
    pub faults: Option<Arc<Faults>>,
    /// Opened with cooperative matrices, where the adapter has them.
    pub cooperative: bool,
    /// Populations begin with NaN in all buffers.
    pub poison: bool,
}

/// Reason why a device cannot be used any more.
#[derive(Clone, Debug)]
enum Broken {
    Lost(String),
    OutOfMemory(String),
    Failed(String),
}

impl Context {
    /// Opens an adapter as a device, with the features and limits that popfit uses.
    pub fn open(adapter: wgpu::Adapter, options: Options) -> Result<Context> {
        let info = adapter.get_info();
        let kernels = Kernels::of(&info)?;
        let name = format!("gpu:{}", info.name);
        let limits = limits(&adapter);
        let mut descriptor = wgpu::DeviceDescriptor {
            label: Some("popfit"),
            required_features: adapter.features()
                & (wgpu::Features::PIPELINE_CACHE | wgpu::Features::TIMESTAMP_QUERY),
            required_limits: limits.clone(),
            ..Default::default()
        };
        if options.cooperative && adapter::matrices(&adapter).is_some() {
            descriptor.required_features |= adapter::OF_MATRICES;
            descriptor.experimental_features = trusted::experimental_features();
        }
        let opened = {
            let _opening = adapter::opening();
            pollster::block_on(adapter.request_device(&descriptor))
        };
        let (device, queue) = opened.map_err(|e| Error::Device {
            device: name.clone(),
            message: e.to_string(),
        })?;
        let broken = watch(&device);
        let software = info.device_type == wgpu::DeviceType::Cpu;
        let memory = adapter::default_memory(info.device_type);
        let cache = cache::folder().and_then(|folder| Cache::open(&device, &info, &folder));
        let (product, halves, fused) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (is_short, compiled, counts) =
            (AtomicBool::new(false), Compiled::default(), Arc::default());
        Ok(Context {
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
            product,
            halves,
            fused,
            options,
            compiled,
            counts,
            broken,
            is_short,
        })
    }

    /// Opens the same adapter again as a fresh device, with the same options and choice of kernels.
    pub fn again(&self) -> Result<Context> {
        let open = |adapter| Context::open(adapter, self.options.clone());
        let fresh = open(self.adapter.clone()).or_else(|_| open(adapter::again(&self.info)?))?;
        let (product, halves, fused) = (
            self.product.clone(),
            self.halves.clone(),
            self.fused.clone(),
        );
        Ok(Context {
            product,
            halves,
            fused,
            counts: self.counts.clone(),
            ..fresh
        })
    }

    /// Opens the same adapter again, with cooperative matrices switched on where it has them.
    pub fn with_matrices(&self) -> Result<Context> {
        let options = Options {
            cooperative: true,
            ..self.options.clone()
        };
        let fresh = Context::open(self.adapter.clone(), options)?;
        let (product, fused, counts) = (
            self.product.clone(),
            self.fused.clone(),
            self.counts.clone(),
        );
        Ok(Context {
            product,
            fused,
            counts,
            ..fresh
        })
    }

    /// Returns the kernel of f32 matrix products: that of the adapter's class, or the plain one where that computes
    /// wrongly.
    pub fn product(&self) -> Variant {
        let is_right = || known_answer::is_right(self, self.kernels.product, Kind::Float);
        *self.product.get_or_init(|| {
            if is_right() {
                self.kernels.product
            } else {
                Variant::Registers
            }
        })
    }

    /// Returns the kernel of f16 matrix products: cooperative matrices where they are right, else as for f32.
    fn product_of_halves(&self) -> Variant {
        let is_fit = |variant: &Variant| {
            !self.software && known_answer::is_right(self, *variant, Kind::Half)
        };
        *self.halves.get_or_init(|| {
            self.matrices()
                .filter(is_fit)
                .unwrap_or_else(|| self.product())
        })
    }

    /// Returns the kernels of f32 and of f16 matrix products; without `of_halves` both are that of f32.
    pub fn products(&self, of_halves: bool) -> Products {
        let full = self.product();
        Products {
            full,
            halves: if of_halves {
                self.product_of_halves()
            } else {
                full
            },
        }
    }

    /// Returns which stages may share a kernel on this device: the fusions of its class, and its limits.
    pub fn allowed(&self) -> Allowed {
        self.allowed_with(*self.fused.get_or_init(|| self.kernels.fused))
    }

    /// Returns these fusions of kernels together with the device's limits, which may forbid some of them.
    pub fn allowed_with(&self, fused: Fused) -> Allowed {
        let wgpu::Limits {
            max_storage_buffers_per_shader_stage: storage_buffers,
            ..
        } = self.limits;
        Allowed {
            fused,
            storage_buffers,
            workgroup_bytes: self.limits.max_compute_workgroup_storage_size,
        }
    }

    /// Returns the product kernel of cooperative matrices if the device was opened with them, else `None`.
    pub fn matrices(&self) -> Option<Variant> {
        adapter::matrices(&self.adapter)
            .filter(|_| self.device.features().contains(adapter::OF_MATRICES))
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
    pub fn check(&self) -> Result<()> {
        let broken = || {
            self.broken
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        };
        if let Some(Broken::Failed(_)) = broken() {
            self.hear();
        }
        match broken() {
            Some(Broken::Lost(message)) => Err(Error::DeviceLost {
                device: self.name.clone(),
                message,
            }),
            Some(Broken::OutOfMemory(message)) => Err(self.too_large(message)),
            Some(Broken::Failed(message)) => Err(self.failure(message)),
            None => Ok(()),
        }
    }

    /// Polls the device for a short time after a failure, so that its callback can report a lost device. On a lost
    /// device commands fail first, and the loss is reported when no work is left, or a moment later.
    fn hear(&self) {
        for _ in 0..MOMENTS {
            self.poll(None, None);
            if matches!(
                &*self.broken.lock().unwrap_or_else(PoisonError::into_inner),
                Some(Broken::Lost(_))
            ) {
                return;
            }
            std::thread::sleep(MOMENT);
        }
    }

    /// Records that the device is broken, so that the next [`Context::check`] fails.
    fn breaks(&self, broken: Broken) {
        write_down(&self.broken, broken);
    }

    /// Returns `honest`, the tolerance at which fits end, unless a test has injected a fault that changes it.
    pub fn tolerance(&self, honest: f64) -> f64 {
        self.options
            .faults
            .as_ref()
            .map_or(honest, |faults| faults.tolerance(honest))
    }

    /// Counts a call to the device, and returns the fault that a test has injected for it, if any.
    pub fn meet(&self, call: Call) -> Option<Fault> {
        let met = self.options.faults.as_ref()?.meet(call)?;
        if met == Fault::Lost && call != Call::Submission {
            self.device.destroy();
        }
        Some(met)
    }

    /// Creates a buffer; an injected out-of-memory fault only marks the device as short of memory.
    pub fn create_buffer(&self, descriptor: &wgpu::BufferDescriptor<'_>) -> wgpu::Buffer {
        if self.meet(Call::Buffer) == Some(Fault::OutOfMemory) {
            self.is_short.store(true, Ordering::Relaxed);
        }
        self.counts.buffers.add(descriptor.size);
        self.device.create_buffer(descriptor)
    }

    /// Writes bytes to a buffer from `offset` on, before whatever is submitted next.
    pub fn write(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        self.counts.uploads.add(bytes.len() as u64);
        self.queue.write_buffer(buffer, offset, bytes);
    }

    /// Returns memory for the first bytes of a buffer, which are written to it before what is submitted thereafter.
    pub fn staging(&self, buffer: &wgpu::Buffer, bytes: u64) -> Result<wgpu::QueueWriteBufferView> {
        self.counts.uploads.add(bytes);
        let view = wgpu::BufferSize::new(bytes)
            .and_then(|size| self.queue.write_buffer_with(buffer, 0, size));
        view.ok_or_else(|| self.failure(format!("no memory from which to copy {bytes} bytes")))
    }

    /// Records a copy of the first `bytes` bytes of a buffer to `offset` of another one.
    pub fn copy(
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
    /// by what to [wait](Self::wait) for them.
    pub fn submit(&self, commands: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
        let met = self.meet(Call::Submission);
        self.counts.submissions.add(1);
        let submission = self.queue.submit([commands.finish()]);
        match met {
            Some(Fault::Lost) => self.device.destroy(),
            Some(Fault::OutOfMemory) => self.breaks(Broken::OutOfMemory("injected".into())),
            _ => {}
        }
        submission
    }

    /// Submits what has been written to buffers, so that the device copies it while the host goes on.
    pub fn flush(&self) {
        self.counts.submissions.add(1);
        self.queue.submit([]);
    }

    /// Returns how long a submission may take before the device counts as lost.
    pub fn limit(&self) -> Duration {
        match self.options.limit.load(Ordering::Relaxed) {
            0 if self.software => LIMIT_OF_SOFTWARE,
            0 => LIMIT,
            milliseconds => Duration::from_millis(milliseconds),
        }
    }

    /// Waits until a submission is done, or all of them without one; in a browser, where that comes by itself, not at
    /// all. [`Error::DeviceLost`] when it takes longer than the limit.
    pub fn wait(
        &self,
        submission: Option<wgpu::SubmissionIndex>,
        met: Option<Fault>,
    ) -> Result<()> {
        self.counts.waits.add(1);
        self.poll(submission, met);
        self.check()
    }

    /// Waits for submitted work up to the time limit, and records a loss, a time-out or an error of the device.
    fn poll(&self, submission_index: Option<wgpu::SubmissionIndex>, met: Option<Fault>) {
        let how = wgpu::PollType::Wait {
            submission_index,
            timeout: Some(self.limit()),
        };
        // a device that is lost while `wgpu` waits makes it panic
        let polled = panic::catch_unwind(AssertUnwindSafe(|| match met {
            Some(Fault::Crash) => panic::resume_unwind(Box::new("injected")),
            Some(Fault::Stall) => Err(wgpu::PollError::Timeout),
            _ => self.device.poll(how),
        }));
        match polled {
            Ok(Ok(_)) => {}
            Ok(Err(wgpu::PollError::Timeout)) => self.give_up(),
            Ok(Err(error)) => self.breaks(Broken::Failed(error.to_string())),
            Err(_) => self.breaks(Broken::Lost("lost while the host waited for it".into())),
        }
    }

    /// Marks the device as lost, because it did not answer in time.
    pub fn give_up(&self) {
        let message = format!("no answer within {} s", self.limit().as_secs_f64());
        self.breaks(Broken::Lost(message));
        // `wgpu` waits without end for a queue that it drops
        std::mem::forget(self.queue.clone());
    }

    /// Runs `create`, and returns errors that the device reports meanwhile as `Err`.
    pub fn guarded<T>(&self, create: impl FnOnce() -> Result<T>) -> Result<T> {
        let filters = [
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Internal,
            wgpu::ErrorFilter::Validation,
        ];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let made = create();
        let mut found = None;
        for scope in scopes.into_iter().rev() {
            let error = pollster::block_on(scope.pop());
            found = found.or(error);
        }
        if self.is_short.swap(false, Ordering::Relaxed) {
            return Err(self.too_large("injected"));
        }
        if found.is_some() {
            self.hear();
            self.check()?;
        }
        match found {
            None => self.check().and(made),
            Some(wgpu::Error::OutOfMemory { source }) => Err(self.too_large(source.to_string())),
            Some(error) => made.and(Err(self.failure(error.to_string()))),
        }
    }
}

/// Records what broke the device first; a loss alone replaces earlier failures.
fn write_down(broken: &Mutex<Option<Broken>>, what: Broken) {
    let mut known = broken.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_none() || matches!((&*known, &what), (Some(Broken::Failed(_)), Broken::Lost(_))) {
        *known = Some(what);
    }
}

/// Returns the limits to ask for: WebGPU's defaults, but buffers as large and as many as the adapter allows.
fn limits(adapter: &wgpu::Adapter) -> wgpu::Limits {
    let has = adapter.limits();
    let buffers = has
        .max_storage_buffers_per_shader_stage
        .clamp(PROMISED_BUFFERS, MOST_BUFFERS);
    wgpu::Limits {
        max_storage_buffer_binding_size: has.max_storage_buffer_binding_size,
        max_buffer_size: has.max_buffer_size,
        max_storage_buffers_per_shader_stage: buffers,
        ..wgpu::Limits::default()
    }
}

/// Registers callbacks that write a device's loss and its uncaught errors into the returned cell.
fn watch(device: &wgpu::Device) -> Arc<Mutex<Option<Broken>>> {
    let broken = Arc::new(Mutex::new(None));
    let record = || {
        let broken = Arc::clone(&broken);
        move |what: Broken| write_down(&broken, what)
    };
    let (lost, failed) = (record(), record());
    device.set_device_lost_callback(move |reason, message| {
        lost(Broken::Lost(format!("lost ({reason:?}): {message}")))
    });
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        failed(match &error {
            wgpu::Error::OutOfMemory { source } => Broken::OutOfMemory(source.to_string()),
            _ => Broken::Failed(error.to_string()),
        });
    }));
    broken
}
