//! A router whose weights can be dropped, and come back when they are asked for.

use super::{Background, Deferral, Device, Footprint, OverBudget, TrimLevel, Work, plan};
use crate::backbone::{BackboneError, Cancel};
use crate::bandit::{OutcomeId, UserStats};
use crate::bench::{self, Bench, BenchError, NoMeter, Plan, Subject};
use crate::decision::{Absent, MemorySnapshot};
use crate::generate::{
    Choice, ChooseOptions, GenerateError, GenerateOptions, Generated, Generation, Generator, Piece,
};
use crate::pack::{LoadError, Pack};
use crate::policy::Policy;
use crate::router::{
    self, Clock, Embedding, Kept, ObserveError, Outcome, Reading, Request, Reward, Router, RouterOptions,
    RouterStats, Session, Stage,
};
use crate::selftest::{self, SelfTestError, SelfTestReport};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use zen_edge_kernels::pool::Pool;

/// How long a bench works until it looks at the device's state and at its caller again.
const SLICE: Duration = Duration::from_millis(50);

/// How a managed router is loaded and runs.
#[derive(Clone, Default)]
pub struct ManagedOptions {
    /// The router's own options. Threads: a phone's fast cores, see [`super::fast_cores`].
    pub router: RouterOptions,
    /// The memory of the device now. With it, a pack that does not fit is refused before it is loaded.
    pub memory: Option<MemorySnapshot>,
    /// What becomes of prompts while the app is not seen.
    pub background: Background,
}

/// Why a managed router does not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LifecycleError {
    /// It was closed.
    #[error("the router was closed: load another one")]
    Closed,
    /// It does not fit.
    #[error(transparent)]
    OverBudget(Box<OverBudget>),
    /// It is to be asked again later.
    #[error(transparent)]
    Deferred(#[from] Deferral),
    /// It does not load, or does not load again.
    #[error(transparent)]
    Load(Box<LoadError>),
    /// The backbone does not read the prompt.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// The reward is not taken.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The bench does not run.
    #[error(transparent)]
    Bench(Box<BenchError>),
    /// Nothing can be generated.
    #[error(transparent)]
    Generate(Box<GenerateError>),
    /// The self-test does not run.
    #[error(transparent)]
    SelfTest(Box<SelfTestError>),
}

/// The large ones are boxed: an answer that is none of them should not pay for their size.
macro_rules! boxed {
    ($($variant:ident($error:ty)),+ $(,)?) => {$(
        impl From<$error> for LifecycleError {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        }
    )+};
}

boxed!(
    OverBudget(OverBudget),
    Load(LoadError),
    Bench(BenchError),
    Generate(GenerateError),
    SelfTest(SelfTestError),
);

/// A managed router's state, in figures.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedStats {
    /// What was decided, and what is held.
    pub router: RouterStats,
    /// Whether the weights are loaded now.
    pub loaded: bool,
    /// How often they were loaded again.
    pub reloads: u64,
    /// What may run now.
    pub work: Work,
}

/// A router for a program that the system watches. Shared by [`Arc`] between threads.
///
/// ```
/// use std::sync::Arc;
/// use zen_edge_core::lifecycle::{Managed, ManagedOptions, TrimLevel};
/// # fn load(pack: zen_edge_core::pack::Pack) -> Result<(), Box<dyn std::error::Error>> {
/// let router = Arc::new(Managed::load(pack, ManagedOptions::default())?);
/// let before = router.route("why is the sky blue?", &Default::default())?;
/// router.trim(TrimLevel::Weights);
/// let after = router.route("why is the sky blue?", &Default::default())?; // loads them again
/// assert_eq!(before.logits, after.logits);
/// # Ok(()) }
/// ```
pub struct Managed {
    /// `None` after [`Self::close`].
    open: Mutex<Option<Open>>,
    kept: Kept,
    device: Mutex<Device>,
    background: Background,
    threads: usize,
    /// Whether the options ask for a GPU.
    wants_gpu: bool,
    sessions: Mutex<Vec<Weak<ManagedSession>>>,
}

struct Open {
    pack: Pack,
    options: RouterOptions,
    pool: Pool,
    /// `None` while the weights are dropped.
    router: Option<Arc<Router>>,
    /// Whether it was loaded without the GPU that its options ask for, since none might be touched then.
    without_gpu: bool,
    /// `None` until the first generation, and while the weights are dropped.
    generator: Option<Generator>,
    reloads: u64,
}

impl Managed {
    /// Loads a pack, after a look at whether it fits.
    ///
    /// # Errors
    /// [`LifecycleError::OverBudget`], [`LifecycleError::Load`].
    pub fn load(pack: Pack, options: ManagedOptions) -> Result<Self, LifecycleError> {
        Self::load_watched(pack, options, &mut |_| ControlFlow::Continue(()))
    }

    /// [`Self::load`], telling before each stage what comes.
    ///
    /// # Errors
    /// As [`Self::load`]; [`LoadError::Cancelled`] where `watch` breaks it off.
    pub fn load_watched(
        pack: Pack,
        options: ManagedOptions,
        watch: &mut dyn FnMut(Stage) -> ControlFlow<()>,
    ) -> Result<Self, LifecycleError> {
        let ManagedOptions { mut router, memory, background } = options;
        if let Some(memory) = memory {
            let policy = match &pack.policy {
                Some(part) => Policy::parse(&part.bytes, &part.name).map_err(LoadError::from)?,
                None => Policy::default(),
            };
            Footprint::of(&pack, &router)?.check(&memory, &policy)?;
        }
        let pool = router
            .pool
            .clone()
            .unwrap_or_else(|| Pool::new(router.threads.unwrap_or_else(Pool::default_threads)));
        router.pool = Some(pool.clone());
        let loaded = Router::load_watched(&pack, &router, None, watch)?;
        Ok(Self {
            kept: loaded.kept(),
            device: Mutex::default(),
            background,
            threads: pool.threads(),
            wants_gpu: router.device != router::Device::Cpu,
            sessions: Mutex::default(),
            open: Mutex::new(Some(Open {
                pack,
                options: router,
                pool,
                router: Some(Arc::new(loaded)),
                without_gpu: false,
                generator: None,
                reloads: 0,
            })),
        })
    }

    /// The router. Where its weights were dropped they are loaded again; so they are where the app is seen again and they had come back
    /// while no GPU might be touched.
    ///
    /// # Errors
    /// [`LifecycleError::Closed`], [`LifecycleError::Load`].
    pub fn router(&self) -> Result<Arc<Router>, LifecycleError> {
        let mut open = lock(&self.open);
        let open = open.as_mut().ok_or(LifecycleError::Closed)?;
        // A GPU's start is work for it too.
        let without_gpu = self.wants_gpu && !self.work().gpu();
        if let Some(router) = open.router.as_ref().filter(|_| without_gpu || !open.without_gpu) {
            return Ok(router.clone());
        }
        let mut options = open.options.clone();
        if without_gpu {
            options.device = router::Device::Cpu;
        }
        let mut on = |_| ControlFlow::Continue(());
        let router =
            match (Router::load_watched(&open.pack, &options, Some(&self.kept), &mut on), &open.router) {
                (Ok(router), _) => router,
                // The one without a GPU answers as well: another is asked for when its weights have been dropped.
                (Err(_), Some(router)) => {
                    open.without_gpu = false;
                    return Ok(router.clone());
                }
                (Err(error), None) => return Err(error.into()),
            };
        open.without_gpu = without_gpu;
        open.generator = None;
        open.reloads += 1;
        Ok(open.router.insert(Arc::new(router)).clone())
    }

    /// [`Router::route`], as far as the device's state allows: by rules where it is too hot. The request's context is told the
    /// device's heat, where it knows a lesser one, and keeps off the GPU where none may be touched.
    ///
    /// # Errors
    /// [`LifecycleError`], by cause.
    pub fn route(&self, prompt: &str, request: &Request<'_>) -> Result<Outcome, LifecycleError> {
        self.with_router(|router, work| {
            let request = self.told(request, work);
            let mut outcome = match work {
                Work::Rules => router.route_by_rules(prompt, &request, Absent::TooHot),
                _ => router.route(prompt, &request),
            }?;
            self.explain(&mut outcome.reading, work);
            Ok(outcome)
        })
    }

    /// [`Router::embed`]. A vector has no rules to fall back to: where it is too hot, one thread reads the prompt.
    ///
    /// # Errors
    /// [`LifecycleError`], by cause.
    pub fn embed(&self, prompt: &str, request: &Request<'_>) -> Result<Embedding, LifecycleError> {
        self.with_router(|router, work| {
            let mut embedding = router.embed(prompt, &self.told(request, work))?;
            self.explain(&mut embedding.reading, work);
            Ok(embedding)
        })
    }

    /// Whether the engine gives on this device what it should, see [`crate::selftest::run`].
    ///
    /// # Errors
    /// [`LifecycleError`], by cause.
    pub fn self_test(&self, answers: Option<&[u8]>) -> Result<SelfTestReport, LifecycleError> {
        let router = self.router()?;
        let model = lock(&self.open).as_ref().ok_or(LifecycleError::Closed)?.pack.model.clone();
        Ok(selftest::run(&router, &model, answers)?)
    }

    /// Measures how fast this device reads, decides and generates, see [`Bench`]. What earlier prompts left in the caches is
    /// forgotten by it.
    ///
    /// # Errors
    /// [`LifecycleError::Bench`]; [`BackboneError::Cancelled`] where `watch` breaks it off; as [`Self::generate`] where
    /// the device's state does not allow it.
    pub fn bench(
        &self,
        plan: Plan,
        clock: Arc<dyn Clock>,
        about: bench::About,
        watch: &mut dyn FnMut(bench::Progress) -> ControlFlow<()>,
    ) -> Result<bench::Record, LifecycleError> {
        self.may_generate()?;
        let mut bench = Bench::new(Subject::Router(self.router()?), plan, clock, Box::new(NoMeter))?;
        loop {
            bench.keep_off_gpu(!self.work().gpu());
            if bench.work(SLICE)? {
                break;
            }
            self.may_generate()?;
            if watch(bench.progress()).is_break() {
                return Err(BackboneError::Cancelled.into());
            }
        }
        Ok(bench.finish(about))
    }

    /// Measures the speed, see [`Router::warm_up`]; the weights are then in memory.
    ///
    /// # Errors
    /// [`LifecycleError`], by cause.
    pub fn warm_up(&self) -> Result<(), LifecycleError> {
        self.with_router(|router, work| router.warm(!work.gpu()).map(|_| ()))
    }

    /// A request that knows how hot the device is, and whether a GPU may be touched.
    fn told<'a>(&self, request: &Request<'a>, work: Work) -> Request<'a> {
        let mut request = request.clone();
        request.cpu_only |= !work.gpu();
        request.context.thermal = request.context.thermal.max(self.device().thermal);
        request
    }

    /// Says why no GPU read a prompt, where one was asked for and might not be touched.
    fn explain(&self, reading: &mut Reading, work: Work) {
        if self.wants_gpu && !work.gpu() && reading.backend.adapter.is_none() {
            let why = "nothing is submitted to a GPU while the app is not seen or the device is hot";
            reading.backend.fallback = Some(why.to_owned());
        }
    }

    fn with_router<T>(
        &self,
        answer: impl FnOnce(&Router, Work) -> Result<T, BackboneError>,
    ) -> Result<T, LifecycleError> {
        let work = self.work();
        // A router that is closed says so even where it would not run now.
        if lock(&self.open).is_none() {
            return Err(LifecycleError::Closed);
        }
        if let Work::Deferred(why) = work {
            return Err(why.into());
        }
        Ok(answer(&*self.router()?, work)?)
    }

    /// The backbone as a generator, with the router's weights; the LM head is opened the first time.
    ///
    /// # Errors
    /// [`LifecycleError::Generate`] where the backbone has none that can be run; as [`Self::router`].
    pub fn generator(&self) -> Result<Generator, LifecycleError> {
        let router = self.router()?;
        let mut open = lock(&self.open);
        let open = open.as_mut().ok_or(LifecycleError::Closed)?;
        if let Some(generator) = &open.generator {
            return Ok(generator.clone());
        }
        Ok(open.generator.insert(router.generator()?).clone())
    }

    /// Begins to generate. The weights stay until it has ended or is dropped, whatever is trimmed meanwhile.
    ///
    /// # Errors
    /// [`LifecycleError`], by cause.
    pub fn generate(
        self: &Arc<Self>,
        prompt: &str,
        options: &GenerateOptions,
    ) -> Result<ManagedGeneration, LifecycleError> {
        self.may_generate()?;
        let generation = self.generator()?.begin(prompt, options)?;
        Ok(ManagedGeneration { owner: self.clone(), generation: Some(generation) })
    }

    /// [`Generator::choose`]. Its passes are the backbone's: it runs where [`Self::generate`] does.
    ///
    /// # Errors
    /// [`LifecycleError::Generate`], with [`BackboneError::Cancelled`] where the options' cancel ends it; as [`Self::generate`]
    /// where the device's state does not allow it.
    pub fn choose(
        &self,
        prompt: &str,
        options: &[impl AsRef<str>],
        how: &ChooseOptions,
    ) -> Result<Vec<Choice>, LifecycleError> {
        self.may_generate()?;
        Ok(self.generator()?.choose(prompt, options, how)?)
    }

    fn may_generate(&self) -> Result<(), LifecycleError> {
        if self.is_closed() {
            return Err(LifecycleError::Closed);
        }
        match self.work() {
            Work::Run { .. } => Ok(()),
            Work::Rules => Err(Deferral::TooHot.into()),
            Work::Deferred(why) => Err(why.into()),
        }
    }

    /// A text that is being typed.
    #[must_use]
    pub fn session(self: &Arc<Self>) -> Arc<ManagedSession> {
        let session = Arc::new(ManagedSession {
            owner: self.clone(),
            held: Mutex::default(),
            latest: Mutex::default(),
        });
        let mut sessions = lock(&self.sessions);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&session));
        session
    }

    /// What the system says of the app and of the device. Threads at work follow it within the pass.
    pub fn set_device(&self, device: Device) {
        *lock(&self.device) = device;
        if let Some(open) = &*lock(&self.open) {
            open.pool.limit(match self.work() {
                Work::Run { threads, .. } => threads,
                Work::Rules | Work::Deferred(_) => 1,
            });
        }
    }

    /// What the system was last said to say.
    pub fn device(&self) -> Device {
        *lock(&self.device)
    }

    /// What may run now.
    pub fn work(&self) -> Work {
        plan(self.threads, &self.device(), self.background)
    }

    /// Gives memory back. Prompts that are being read keep theirs until they are answered.
    pub fn trim(&self, level: TrimLevel) {
        let router = match &mut *lock(&self.open) {
            Some(open) if level == TrimLevel::Weights => {
                open.generator = None;
                open.router.take()
            }
            Some(open) => open.router.clone(),
            None => None,
        };
        if let Some(router) = router {
            match level {
                TrimLevel::Contexts => router.clear_contexts(),
                TrimLevel::Caches | TrimLevel::Weights => router.clear_cache(),
            }
        }
        self.forget_sessions();
    }

    fn forget_sessions(&self) {
        let sessions: Vec<_> = lock(&self.sessions).iter().filter_map(Weak::upgrade).collect();
        for session in sessions {
            session.forget();
        }
    }

    /// Gives everything back: what is asked afterwards is [`LifecycleError::Closed`]. Prompts that are being read keep what they
    /// need until they are answered; cancel them to end sooner. Closing twice is no fault.
    pub fn close(&self) {
        drop(lock(&self.open).take());
        self.forget_sessions();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        lock(&self.open).is_none()
    }

    /// What was done and what is held; the weights are not loaded for it.
    ///
    /// # Errors
    /// [`LifecycleError::Closed`].
    pub fn stats(&self) -> Result<ManagedStats, LifecycleError> {
        let open = lock(&self.open);
        let open = open.as_ref().ok_or(LifecycleError::Closed)?;
        let router = match &open.router {
            Some(router) => router.stats(),
            None => self.kept.stats(),
        };
        Ok(ManagedStats { router, loaded: open.router.is_some(), reloads: open.reloads, work: self.work() })
    }

    /// [`Router::observe`].
    ///
    /// # Errors
    /// [`LifecycleError::Observe`]; [`LifecycleError::Load`] where the weights had been dropped.
    pub fn observe(&self, outcome: OutcomeId, reward: impl Into<Reward>) -> Result<(), LifecycleError> {
        Ok(self.router()?.observe(outcome, reward)?)
    }

    /// [`Router::user`].
    pub fn user(&self, user: &str) -> Option<UserStats> {
        self.kept.user(user)
    }

    /// [`Router::forget_user`].
    pub fn forget_user(&self, user: &str) -> bool {
        self.kept.forget_user(user)
    }

    /// [`Router::forget_conversation`].
    pub fn forget_conversation(&self, conversation: &str) -> bool {
        self.kept.forget_conversation(conversation)
    }

    /// [`Router::learning`].
    pub fn learning(&self) -> Vec<u8> {
        self.kept.learning()
    }
}

/// A text that is being typed, over a [`Managed`] router: [`Session`], which survives that weights are dropped.
pub struct ManagedSession {
    owner: Arc<Managed>,
    held: Mutex<Option<Arc<Session>>>,
    latest: Mutex<Arc<Cancel>>,
}

impl ManagedSession {
    /// Says that a newer text is coming: the work on older ones ends, also of those that still wait for their turn. What is
    /// given goes with the newer text into [`Self::update`].
    #[must_use]
    pub fn supersede(&self) -> Arc<Cancel> {
        let cancel = Arc::new(Cancel::new());
        std::mem::replace(&mut *lock(&self.latest), cancel.clone()).cancel();
        cancel
    }

    /// [`Session::update`]; `cancel` is what [`Self::supersede`] gave for this text. A request's own cancel counts too: before
    /// the text is read.
    ///
    /// # Errors
    /// [`LifecycleError`]; [`BackboneError::Cancelled`] where a newer text has come.
    pub fn update(
        &self,
        text: &str,
        request: &Request<'_>,
        cancel: &Cancel,
    ) -> Result<Outcome, LifecycleError> {
        if cancel.is_cancelled() || request.cancel.is_some_and(Cancel::is_cancelled) {
            return Err(BackboneError::Cancelled.into());
        }
        let work = self.owner.work();
        if let Work::Deferred(why) = work {
            return Err(why.into());
        }
        let router = self.owner.router()?;
        let request = self.owner.told(request, work);
        if work == Work::Rules {
            return Ok(router.by_rules(text, &request, Absent::TooHot, true)?);
        }
        let session = self.session(router);
        let mut outcome = session.update(text, &Request { cancel: Some(cancel), ..request })?;
        self.owner.explain(&mut outcome.reading, work);
        Ok(outcome)
    }

    /// The session over this very router.
    fn session(&self, router: Arc<Router>) -> Arc<Session> {
        let mut held = lock(&self.held);
        match &*held {
            Some(session) if session.belongs_to(&router) => session.clone(),
            _ => held.insert(Arc::new(Session::new(router))).clone(),
        }
    }

    /// Ends the work on the last text, and forgets it.
    pub fn clear(&self) {
        lock(&self.latest).cancel();
        self.forget();
    }

    fn forget(&self) {
        drop(lock(&self.held).take());
    }
}

/// A generation over a [`Managed`] router: [`Generation`], which looks at the device's state before each token.
pub struct ManagedGeneration {
    owner: Arc<Managed>,
    /// `None` after the router was closed.
    generation: Option<Generation>,
}

impl ManagedGeneration {
    /// The next token; `None` when it has ended. Where it is deferred, it can be asked again later and goes on.
    ///
    /// # Errors
    /// [`LifecycleError`], by cause.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, LifecycleError> {
        if self.owner.is_closed() {
            self.generation = None;
        }
        let generation = self.generation.as_mut().ok_or(LifecycleError::Closed)?;
        if generation.reason().is_none() {
            self.owner.may_generate()?;
        }
        Ok(generation.next_piece()?)
    }

    /// What was generated.
    ///
    /// # Errors
    /// [`LifecycleError::Closed`] where the router was closed before it had ended.
    pub fn finish(self) -> Result<Generated, LifecycleError> {
        self.generation.map(Generation::finish).ok_or(LifecycleError::Closed)
    }
}

/// What is behind a mutex, whatever befell another thread: every change leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
