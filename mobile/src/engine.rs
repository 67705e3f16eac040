//! What apps call.

use crate::error::ZenEdgeError;
use crate::listener::{LoadStage, LogLevel, Progress, RouterListener};
use crate::pack::{FileSource, PackSource};
use crate::types::{
    About, Embedding, Footprint, LoadOptions, Outcome, RouteOptions, SelfTestReport, Stats, TrimLevel,
};
use crate::worker::Worker;
use std::ops::ControlFlow;
use std::sync::Arc;
use zen_edge_core::backbone::Cancel;
use zen_edge_core::bandit::OutcomeId;
use zen_edge_core::decision::Thermal;
use zen_edge_core::lifecycle::{self, Device, Managed, ManagedSession};
use zen_edge_core::router::{Calibration, Reward};

/// Ends the call that it is handed to, within a part of a layer of a chunk. One token is for one call.
#[derive(Debug, Default, uniffi::Object)]
pub struct CancelToken(Arc<Cancel>);

#[uniffi::export]
impl CancelToken {
    /// A token that cancels nothing yet.
    #[uniffi::constructor]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the call, for good.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

pub(crate) fn cancel(token: Option<Arc<CancelToken>>) -> Arc<Cancel> {
    token.map_or_else(Arc::default, |token| token.0.clone())
}

/// The version of the engine.
#[uniffi::export]
pub fn engine_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// What a router over a pack will take; nothing is loaded for it.
#[uniffi::export(default(options))]
pub fn footprint(source: PackSource, options: LoadOptions) -> Result<Footprint, ZenEdgeError> {
    Ok(lifecycle::Footprint::of(&source.open()?, &options.managed().router)?.into())
}

/// A loaded router, as the packages of each language wrap it.
#[derive(uniffi::Object)]
pub struct Engine {
    pub(crate) managed: Arc<Managed>,
    pub(crate) worker: Arc<Worker>,
    about: About,
    listener: Option<Arc<dyn RouterListener>>,
}

#[uniffi::export]
impl Engine {
    /// Loads a pack on a thread of its own.
    #[uniffi::constructor]
    pub async fn load(
        source: PackSource,
        options: LoadOptions,
        listener: Option<Arc<dyn RouterListener>>,
        token: Option<Arc<CancelToken>>,
    ) -> Result<Arc<Self>, ZenEdgeError> {
        let worker = Arc::new(Worker::new()?);
        // Descriptors are duplicated before the caller may close them.
        let pack = source.open()?;
        let told = listener.clone();
        let loading = worker.run(cancel(token), move |cancel| {
            let progress = |progress| tell(told.as_ref(), progress);
            let managed = Managed::load_watched(pack, options.managed(), &mut |stage| {
                progress(stage.into());
                if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if options.warm_up {
                progress(Progress { stage: LoadStage::WarmUp, done: 0, total: 0 });
                managed.warm_up()?;
            }
            let router = managed.router()?;
            if let Calibration::OtherBackbone { .. } = router.calibration() {
                let words =
                    "the heads' temperatures were fitted to another backbone: confidences are not calibrated";
                log(told.as_ref(), LogLevel::Warning, words.into());
            }
            let about = About::new(&router);
            let words = format!(
                "loaded: {}, {} layers, {} on {} threads",
                about.architecture, about.layers, about.isa, about.threads
            );
            log(told.as_ref(), LogLevel::Info, words);
            progress(Progress { stage: LoadStage::Ready, done: 0, total: 0 });
            Ok((managed, about))
        });
        let (managed, about) = loading.await?;
        Ok(Arc::new(Self { managed: Arc::new(managed), worker, about, listener }))
    }

    /// What was loaded.
    pub fn about(&self) -> About {
        self.about.clone()
    }

    /// Decides which model should answer a prompt.
    pub async fn route(
        &self,
        prompt: String,
        options: RouteOptions,
        token: Option<Arc<CancelToken>>,
    ) -> Result<Outcome, ZenEdgeError> {
        let managed = self.managed.clone();
        self.worker
            .run(cancel(token), move |cancel| {
                let router = managed.router()?;
                options.check(router.catalog())?;
                let outcome = managed.route(&prompt, &options.request(cancel))?;
                Ok(Outcome::new(&router, &options.limits, outcome))
            })
            .await
    }

    /// The last token's hidden state of a prompt.
    pub async fn embed(
        &self,
        prompt: String,
        plain_text: Option<bool>,
        token: Option<Arc<CancelToken>>,
    ) -> Result<Embedding, ZenEdgeError> {
        let managed = self.managed.clone();
        self.worker
            .run(cancel(token), move |cancel| {
                let options = RouteOptions { plain_text, ..RouteOptions::default() };
                Ok(managed.embed(&prompt, &options.request(cancel))?.into())
            })
            .await
    }

    /// A text that is being typed.
    pub fn session(&self) -> Arc<Typing> {
        Arc::new(Typing {
            managed: self.managed.clone(),
            worker: self.worker.clone(),
            session: self.managed.session(),
        })
    }

    /// Tells how an answer turned out; it may come late, in any order, or never.
    pub async fn observe(&self, outcome: String, reward: Reward) -> Result<(), ZenEdgeError> {
        let id: OutcomeId =
            outcome.parse().map_err(|error| ZenEdgeError::UnknownOutcome { detail: format!("{error}") })?;
        let managed = self.managed.clone();
        self.worker.run(Arc::default(), move |_| Ok(managed.observe(id, reward)?)).await
    }

    /// What was done and what is held; the weights are not loaded for it.
    pub fn stats(&self) -> Result<Stats, ZenEdgeError> {
        Ok(self.managed.stats()?.into())
    }

    /// Whether the engine gives on this device what it should. `answers` is a pack's `selftest.json`; without it only the
    /// instruction set is held against the plain code.
    pub async fn self_test(&self, answers: Option<FileSource>) -> Result<SelfTestReport, ZenEdgeError> {
        let answers = answers.map(FileSource::part).transpose()?;
        let managed = self.managed.clone();
        self.worker
            .run(Arc::default(), move |_| {
                Ok(managed.self_test(answers.as_ref().map(|part| &*part.bytes))?.into())
            })
            .await
    }

    /// Gives memory back. What was learned stays; answers keep their bits.
    pub fn trim(&self, level: TrimLevel) {
        self.managed.trim(level.into());
        self.log(LogLevel::Info, || format!("trimmed: {level:?}"));
    }

    /// What Android's `onTrimMemory` asks for.
    pub fn on_trim_memory(&self, level: i32) {
        if let Some(trim) = lifecycle::TrimLevel::of_android(level) {
            self.managed.trim(trim);
            self.log(LogLevel::Info, || format!("trimmed: {trim:?}, by onTrimMemory({level})"));
        }
    }

    /// What iOS's memory warning asks for.
    pub fn on_memory_warning(&self) {
        let trim = lifecycle::TrimLevel::of_memory_warning(self.managed.device().foreground);
        self.managed.trim(trim);
        self.log(LogLevel::Info, || format!("trimmed: {trim:?}, by a memory warning"));
    }

    /// Whether the app is seen.
    pub fn set_foreground(&self, foreground: bool) {
        self.managed.set_device(Device { foreground, ..self.managed.device() });
    }

    /// How hot the device is.
    pub fn set_thermal(&self, thermal: Thermal) {
        self.managed.set_device(Device { thermal, ..self.managed.device() });
    }

    /// Forgets what a user's rewards taught. Whether there was anything.
    pub fn forget_user(&self, user: String) -> bool {
        self.managed.forget_user(&user)
    }

    /// Forgets a conversation's model. Whether there was one.
    pub fn forget_conversation(&self, conversation: String) -> bool {
        self.managed.forget_conversation(&conversation)
    }

    /// What was learned, as a file without any text of a prompt.
    pub fn learning(&self) -> Vec<u8> {
        self.managed.learning()
    }

    /// Takes over such a file. What is wrong with it, where something is: then learning begins anew.
    pub async fn restore_learning(&self, bytes: Vec<u8>) -> Result<Option<String>, ZenEdgeError> {
        let managed = self.managed.clone();
        self.worker
            .run(Arc::default(), move |_| {
                Ok(managed.router()?.restore_learning(&bytes).map(|fresh| fresh.to_string()))
            })
            .await
    }

    /// Gives everything back; what is asked afterwards fails with `Closed`, and so does what is under way. Twice is no fault.
    pub fn shut_down(&self) {
        self.managed.close();
        self.worker.close();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.managed.is_closed()
    }
}

impl Engine {
    fn log(&self, level: LogLevel, words: impl FnOnce() -> String) {
        if self.listener.is_some() {
            log(self.listener.as_ref(), level, words());
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn tell(listener: Option<&Arc<dyn RouterListener>>, progress: Progress) {
    if let Some(listener) = listener {
        // A listener that fails is passed over: loading goes on.
        let _ = listener.on_progress(progress);
    }
}

fn log(listener: Option<&Arc<dyn RouterListener>>, level: LogLevel, message: String) {
    if let Some(listener) = listener {
        let _ = listener.on_log(level, message);
    }
}

/// A text that is being typed: each update pays for what is new since the last one, and ends the work on older ones.
#[derive(uniffi::Object)]
pub struct Typing {
    managed: Arc<Managed>,
    worker: Arc<Worker>,
    session: Arc<ManagedSession>,
}

#[uniffi::export]
impl Typing {
    /// The text as it is now. Its answer is a draft: it has no id, and is not counted. Fails with `Superseded` where a newer
    /// text has come.
    pub async fn update(&self, text: String, options: RouteOptions) -> Result<Outcome, ZenEdgeError> {
        let stale = self.session.supersede();
        let (managed, session, superseded) = (self.managed.clone(), self.session.clone(), stale.clone());
        let done = self
            .worker
            .run(stale, move |cancel| {
                let router = managed.router()?;
                options.check(router.catalog())?;
                let outcome = session.update(&text, &options.request(cancel), cancel)?;
                Ok(Outcome::new(&router, &options.limits, outcome))
            })
            .await;
        match done {
            Err(ZenEdgeError::Cancelled { .. }) if superseded.is_cancelled() => {
                Err(ZenEdgeError::Superseded { detail: "a newer text has come".into() })
            }
            done => done,
        }
    }

    /// Ends the work on the last text, and forgets it.
    pub fn clear(&self) {
        self.session.clear();
    }
}
