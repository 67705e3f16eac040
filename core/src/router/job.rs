//! A prompt on its way in steps, for a caller with an event loop: a browser's worker sees an abort only between two of
//! them.

use super::{
    Embedding, GpuRead, Home, Missed, Opened, Outcome, Place, Request, Router, Session, Unread, lock,
};
use crate::backbone::{BackboneError, Cancel, Context, Pass};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// A prompt that is being answered: [`Router::begin`], [`Router::begin_embed`] or [`Session::begin`], then [`Job::step`]
/// until it is done, then [`Job::outcome`] or [`Job::embedding`]. The answer has the same bits as [`Router::route`]'s, where the CPU
/// reads.
///
/// Dropping a job cancels it: what it had taken is given back.
pub struct Job {
    router: Arc<Router>,
    prompt: String,
    request: Request<'static>,
    user: Option<String>,
    conversation: Option<String>,
    /// With the typing session that it belongs to, what makes it stale.
    session: Option<(Arc<Session>, Arc<Cancel>)>,
    /// Whether only the vector is asked for.
    bare: bool,
    start: Duration,
    state: State,
}

enum State {
    Reading(Box<(Unread, Pass)>),
    /// A GPU reads; where it gives it up the CPU begins.
    OnGpu(Box<(Unread, GpuRead)>),
    Read(Box<Result<Embedding, Missed>>),
    Over,
}

/// What a step of a [`Job`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The job is done.
    Done,
    /// There is more to do.
    Working,
    /// There is nothing to do before a GPU answers.
    Waiting,
}

impl Router {
    /// Begins to answer a prompt, as [`Router::route`] does. Of the request, the cancel is not looked at.
    #[must_use]
    pub fn begin(self: &Arc<Self>, prompt: &str, request: &Request<'_>) -> Job {
        Job::new(self, prompt, request, None, false)
    }

    /// Begins to read a prompt, as [`Router::embed`] does.
    #[must_use]
    pub fn begin_embed(self: &Arc<Self>, prompt: &str, request: &Request<'_>) -> Job {
        Job::new(self, prompt, &super::timeless(request), None, true)
    }
}

impl Session {
    /// Begins to answer the text as it is now, as [`Session::update`] does; a job of an older text ends at its next step.
    #[must_use]
    pub fn begin(self: &Arc<Self>, text: &str, request: &Request<'_>) -> Job {
        let stale = self.supersede();
        Job::new(&self.router, text, request, Some((self.clone(), stale)), false)
    }
}

impl Job {
    fn new(
        router: &Arc<Router>,
        prompt: &str,
        request: &Request<'_>,
        session: Option<(Arc<Session>, Arc<Cancel>)>,
        bare: bool,
    ) -> Self {
        let start = router.clock.now();
        let mut job = Self {
            router: router.clone(),
            prompt: prompt.to_owned(),
            user: request.user.map(str::to_owned),
            conversation: request.conversation.map(str::to_owned),
            request: Request { user: None, conversation: None, cancel: None, ..request.clone() },
            session,
            bare,
            start,
            state: State::Over,
        };
        job.state = match super::unread(prompt, request).filter(|_| !bare) {
            Some(absent) => State::Read(Box::new(Err(Missed::Unread(absent)))),
            None => job.open().unwrap_or_else(|missed| State::Read(Box::new(Err(missed)))),
        };
        job
    }

    /// Tokenises, looks up, takes a context; the pass over what is new.
    fn open(&self) -> Result<State, Missed> {
        // A session's context is taken out while it is worked on: a job holds no lock between two steps.
        let mut own = self.session.as_ref().map(|(session, _)| session.take());
        let place = own.as_mut().map_or(Place::Pool, Place::Own);
        let opened = match self.router.open(&self.prompt, &self.request(), place) {
            Ok(Opened::Known(embedding)) => Ok(Err(embedding)),
            Ok(Opened::Unread(unread, Home::Pool(None))) if !self.request.cpu_only => {
                match self.router.gpu.begin(&unread.ids) {
                    Some(read) => return Ok(State::OnGpu(Box::new((*unread, read)))),
                    None => Ok(Ok((unread, None, false))),
                }
            }
            Ok(Opened::Unread(unread, Home::Pool(context))) => Ok(Ok((unread, context, false))),
            Ok(Opened::Unread(unread, Home::Own(context))) => Ok(Ok((unread, None, context.is_some()))),
            Err(missed) => Err(missed),
        };
        let (unread, context, owns) = match opened {
            Ok(Ok(unread)) => unread,
            Ok(Err(embedding)) => {
                self.give_back(own);
                return Ok(State::Read(Box::new(Ok(embedding))));
            }
            Err(missed) => {
                self.give_back(own);
                return Err(missed);
            }
        };
        let context = if owns { own.take() } else { context };
        // A text too long to be kept leaves the session's context as it is.
        self.give_back(own);
        let pass = self.router.backbone.begin(&unread.ids, context)?;
        Ok(State::Reading(Box::new((*unread, pass))))
    }

    fn give_back(&self, context: Option<Context>) {
        match (context, &self.session) {
            (Some(context), Some((session, _))) => session.put(context),
            (Some(context), None) => self.router.prefixes.put(context),
            (None, _) => {}
        }
    }

    fn request(&self) -> Request<'_> {
        Request {
            user: self.user.as_deref(),
            conversation: self.conversation.as_deref(),
            ..self.request.clone()
        }
    }

    /// Works on; whether it is done. A step takes as long as a part of a layer of a chunk.
    pub fn step(&mut self) -> bool {
        self.advance(Waker::noop()) == Step::Done
    }

    /// Works on. Where it waits for a GPU it wakes `waker` when there is something to do again.
    pub fn advance(&mut self, waker: &Waker) -> Step {
        let stale = self.session.as_ref().is_some_and(|(_, stale)| stale.is_cancelled());
        let late = |unread: &Unread| unread.deadline().is_some_and(|at| self.router.clock.now() >= at);
        let (vector, on_gpu) = match &mut self.state {
            State::Read(_) | State::Over => return Step::Done,
            State::Reading(reading) if stale || late(&reading.0) => (Err(BackboneError::Cancelled), false),
            State::OnGpu(reading) if late(&reading.0) => (Err(BackboneError::Cancelled), true),
            State::Reading(reading) => match self.router.backbone.step(&mut reading.1) {
                Ok(None) => return Step::Working,
                Ok(Some(vector)) => (Ok(vector), false),
                Err(error) => (Err(error), false),
            },
            State::OnGpu(reading) => {
                match reading.1.as_mut().poll(&mut std::task::Context::from_waker(waker)) {
                    Poll::Pending => return Step::Waiting,
                    Poll::Ready(Some(vector)) => (vector, true),
                    Poll::Ready(None) => return self.take_over(),
                }
            }
        };
        match std::mem::replace(&mut self.state, State::Over) {
            State::Reading(reading) => {
                let (unread, pass) = *reading;
                self.state = State::Read(Box::new(self.router.close(unread, vector, stale)));
                self.give_back(pass.into_context());
            }
            State::OnGpu(reading) => {
                let mut read = self.router.close(reading.0, vector, stale);
                if let (Ok(embedding), true) = (&mut read, on_gpu) {
                    self.router.gpu.sign(&mut embedding.reading.backend);
                }
                self.state = State::Read(Box::new(read));
            }
            other => self.state = other,
        }
        Step::Done
    }

    /// The CPU begins with what the GPU gave up.
    fn take_over(&mut self) -> Step {
        if let State::OnGpu(reading) = std::mem::replace(&mut self.state, State::Over) {
            let unread = reading.0;
            self.state = match self.router.backbone.begin(&unread.ids, None) {
                Ok(pass) => State::Reading(Box::new((unread, pass))),
                Err(error) => State::Read(Box::new(Err(error.into()))),
            };
        }
        Step::Working
    }

    /// The answer; what is left of the work is done now.
    ///
    /// # Errors
    /// As [`Router::route`]; [`BackboneError::Cancelled`] where a newer text of the session has come.
    pub fn outcome(mut self) -> Result<Outcome, BackboneError> {
        let read = self.finish();
        let draft = self.session.is_some();
        self.router.settle(&self.prompt, &self.request(), read, self.start, draft)
    }

    /// The vector; what is left of the work is done now.
    ///
    /// # Errors
    /// As [`Router::embed`].
    pub fn embedding(mut self) -> Result<Embedding, BackboneError> {
        self.finish().map_err(Missed::into_error)
    }

    fn finish(&mut self) -> Result<Embedding, Missed> {
        loop {
            match self.advance(Waker::noop()) {
                Step::Done => break,
                Step::Working => {}
                // Where nothing can come while it is waited for, the CPU does not wait.
                Step::Waiting if cfg!(target_family = "wasm") => {
                    self.take_over();
                }
                Step::Waiting => std::thread::yield_now(),
            }
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Read(read) => *read,
            State::Reading(_) | State::OnGpu(_) | State::Over => {
                Err(Missed::Backbone(BackboneError::Cancelled))
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let context = match std::mem::replace(&mut self.state, State::Over) {
            State::Reading(reading) => reading.1.into_context(),
            State::OnGpu(_) => None,
            State::Read(_) | State::Over => return,
        };
        self.give_back(context);
        if !self.bare && self.session.is_none() {
            self.router.counts.with(|counts| counts.cancelled += 1);
        }
    }
}

impl Session {
    /// Ends the work on older texts; what will end that on this one.
    pub(super) fn supersede(&self) -> Arc<Cancel> {
        let stale = Arc::new(Cancel::new());
        std::mem::replace(&mut *lock(&self.latest), stale.clone()).cancel();
        stale
    }

    fn take(&self) -> Context {
        std::mem::replace(&mut *lock(&self.context), self.router.backbone().context())
    }

    fn put(&self, context: Context) {
        *lock(&self.context) = context;
    }
}
