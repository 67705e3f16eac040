"""The scenario that every language runs (mobile/scenario): its lines are the same in each, to the bit.

    python scenario.py PACK PROMPTS OUT
"""

import asyncio
import gc
import hashlib
import os
import struct
import sys
import tempfile

import zen_edge
from zen_edge import (
    BackgroundPolicy,
    CancelToken,
    ChooseOptions,
    Device,
    FileSource,
    GenerateOptions,
    Limits,
    LoadOptions,
    LoadStage,
    MemorySnapshot,
    Message,
    PackSource,
    RouteOptions,
    Router,
    Thermal,
    TrimLevel,
    ZenEdgeError,
)

LONG = "A sentence of the report that goes on for many pages. " * 60


def bits(value):
    return "-" if value is None else struct.pack(">f", value).hex()


def double(value):
    return "-" if value is None else struct.pack(">d", value).hex()


def camel(name):
    return "".join(word.capitalize() for word in name.split("_"))


def digest(vector):
    return hashlib.sha256(struct.pack(f"<{len(vector)}f", *vector)).hexdigest()


class Scenario:
    def __init__(self, pack, prompts):
        self.pack, self.prompts, self.lines = pack, prompts, []

    def say(self, *words):
        self.lines.append("\t".join(str(word) for word in words))

    def check(self, name, holds):
        if not holds:
            raise AssertionError(f"{name} does not hold")
        self.say("check", name)

    async def fails(self, name, kind, work):
        try:
            await work
        except ZenEdgeError as error:
            if not isinstance(error, kind):
                raise AssertionError(f"{name}: {error!r}") from error
            self.say("fails", name, kind.__name__)
            return error
        raise AssertionError(f"{name} does not fail")

    def load(self, **options):
        return Router.load(self.pack, LoadOptions(threads=2, **options))

    def outcome(self, place, outcome):
        chosen = [f"{c.model}={double(c.score)}" for c in outcome.candidates if c.feasible][:3]
        self.say(
            "route",
            place,
            camel(outcome.task.name),
            outcome.model or "-",
            camel(outcome.level.name),
            camel(outcome.source.name),
            outcome.because,
            bits(outcome.task_confidence.calibrated),
            bits(outcome.confidence.calibrated),
            outcome.tokens,
            str(outcome.truncated).lower(),
            ",".join(chosen),
        )

    async def loading(self):
        stages, logs = [], []
        options = LoadOptions(threads=2, warm_up=True)
        told = dict(on_progress=lambda p: stages.append(p.stage), on_log=lambda _, message: logs.append(message))
        with await Router.load(self.pack, options, **told) as router:
            about = router.about
            self.say("about", about.architecture, about.layers, about.hidden_size, about.threads, ",".join(about.tasks))
        order = [stage for at, stage in enumerate(stages) if stage not in stages[:at]]
        expected = [LoadStage.HEADS, LoadStage.WEIGHTS, LoadStage.TOKENIZER, LoadStage.HASH, LoadStage.WARM_UP]
        self.check("progress", order == expected + [LoadStage.READY])
        self.check("logs", any(message.startswith("loaded") for message in logs))

        def failing(_):
            raise ValueError("a listener that fails")

        (await Router.load(self.pack, options, on_progress=failing)).close()
        self.check("a listener that fails is passed over", True)

        await self.fails("no folder", ZenEdgeError.Io, Router.load("/no/such/folder"))
        config = FileSource.PATH(path=os.path.join(self.pack, "router_config.json"))
        wrong = PackSource.HEADS(model=config, folder=self.pack)
        await self.fails("a config as model", ZenEdgeError.ModelDamaged, Router.load(wrong))
        memory = MemorySnapshot(available=10_000_000, total=4_000_000_000)
        over = await self.fails("budget", ZenEdgeError.OverBudget, self.load(memory=memory))
        self.check("budget has figures", over.needs > over.budget and over.available == 10_000_000)
        footprint = Router.footprint(self.pack)
        self.check("footprint", footprint.mapped and footprint.total > footprint.weights > 0)
        token = CancelToken()
        token.cancel()
        await self.fails("load cancelled", ZenEdgeError.Cancelled, Router.load(self.pack, token=token))

    async def sources(self):
        """The same bits from a path, from a part of an open file, and from memory."""
        names = ["model.gguf", "heads.safetensors", "router_config.json", "catalog.yaml", "router_policy.yaml"]
        files = [open(os.path.join(self.pack, name), "rb").read() for name in names]
        with tempfile.TemporaryFile() as archive:
            archive.write(b"odd")
            parts = []
            for name, file in zip(names, files):
                parts.append((archive.tell(), len(file), name))
                archive.write(file)
            archive.flush()
            described = [
                FileSource.DESCRIPTOR(fd=archive.fileno(), offset=offset, length=length, name=name)
                for offset, length, name in parts
            ]
            mapped = await Router.load(PackSource.FILES(*described), LoadOptions(threads=2))
        held = [FileSource.BYTES(bytes=file, name=name) for name, file in zip(names, files)]
        for router in (mapped, await Router.load(PackSource.FILES(*held), LoadOptions(threads=2))):
            with router:
                self.say("source", digest((await router.embed(self.prompts[0])).vector))
        bad = [FileSource.DESCRIPTOR(fd=987_654, offset=0, length=None, name="asset")] + held[1:]
        await self.fails("no descriptor", ZenEdgeError.Io, Router.load(PackSource.FILES(*bad)))

    async def answers(self):
        async with await self.load() as router:
            report = await router.self_test(FileSource.PATH(path=os.path.join(self.pack, "selftest.json")))
            self.check("self-test", report.passed and report.prompts > 0)
            for at, prompt in enumerate(self.prompts):
                self.outcome(at, await router.route(prompt))
                self.say("embed", at, digest((await router.embed(prompt)).vector))
            self.check("a known prompt", (await router.route(self.prompts[0])).cached)
            self.outcome("long", await router.route(LONG * 20))
            self.outcome("blank", await router.route(" "))
            self.outcome("cheap", await router.route(self.prompts[0], RouteOptions(limits=Limits(max_cost=0.0005))))
            ran = (await router.route(self.prompts[0])).backend
            flags = [str(flag).lower() for flag in (ran.adapter is not None, ran.fallback is not None)]
            self.say("backend", ran.device, ran.threads, *flags)
            async with await self.load(device=Device.GPU) as asked:
                ran = (await asked.route(self.prompts[0])).backend
                # A library without a GPU says so; one with it has a GPU, or says why not.
                self.check("a GPU or why not", (ran.adapter is None) != (ran.fallback is None))
            await self.fails("embed nothing", ZenEdgeError.NoTokens, router.embed(""))
            unknown = RouteOptions(limits=Limits(exclude=["no-such-model"]))
            await self.fails("unknown model", ZenEdgeError.UnknownModel, router.route("hello", unknown))

            # Many at once give what each gives alone.
            alone = [await router.route(prompt) for prompt in self.prompts]
            router.trim(TrimLevel.CACHES)
            together = await asyncio.gather(*(router.route(prompt) for prompt in self.prompts * 3))
            same = all(
                (one.task, one.model, one.candidates) == (two.task, two.model, two.candidates)
                for one, two in zip(alone * 3, together)
            )
            self.check("many at once", same)

    async def cancelling(self):
        async with await self.load() as router:
            token = CancelToken()
            token.cancel()
            await self.fails("route cancelled", ZenEdgeError.Cancelled, router.route(LONG, token=token))
            task = asyncio.create_task(router.route(LONG))
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
                raise AssertionError("a cancelled task has an answer")
            except asyncio.CancelledError:
                self.check("task cancelled", True)
            self.check("answers after it", (await router.route("hello")).tokens > 0)

            session = router.session()
            await session.update("Write a short story about a")
            draft = await session.update("Write a short story about a lighthouse")
            self.check("drafts reuse", draft.reused > 0 and draft.id is None)
            # Behind a long prompt the older text waits, and is stale when its turn comes.
            busy = asyncio.create_task(router.route("Busy. " + LONG))
            await asyncio.sleep(0)
            older = asyncio.create_task(session.update("Write a short story about a lighthouse keeper"))
            await asyncio.sleep(0)
            newer = asyncio.create_task(session.update("Write a short story about a lighthouse keeper's dog"))
            await self.fails("superseded", ZenEdgeError.Superseded, older)
            self.check("the newer text is answered", (await newer).tokens > 0)
            await busy
            session.clear()

    async def lifecycle(self):
        async with await self.load(background=BackgroundPolicy.DEFER) as router:
            before = digest((await router.embed(self.prompts[0])).vector)
            for level in (TrimLevel.CONTEXTS, TrimLevel.CACHES, TrimLevel.WEIGHTS):
                router.trim(level)
                self.say("trim", camel(level.name), str(router.stats().loaded).lower(), router.stats().cache.entries)
            after = digest((await router.embed(self.prompts[0])).vector)
            self.check("weights come back", before == after and router.stats().reloads == 1)
            router.set_foreground(False)
            await self.fails("background", ZenEdgeError.Deferred, router.route("hello"))
            router.set_foreground(True)
            for thermal in (Thermal.FAIR, Thermal.SERIOUS, Thermal.CRITICAL):
                router.set_thermal(thermal)
                self.say("thermal", camel(thermal.name), router.stats().threads)
            self.outcome("hot", await router.route(self.prompts[0]))
            await self.fails("too hot to generate", ZenEdgeError.Deferred, router.generate("Once"))
            await self.fails("too hot to choose", ZenEdgeError.Deferred, router.choose("Once", [" a", " b"]))
            router.set_thermal(Thermal.NOMINAL)

            outcome = await router.route(self.prompts[0], RouteOptions(user="ann", conversation="c"))
            self.check("an id for a reward", outcome.id is not None)
            await router.observe(outcome, 0.9)
            await self.fails("rewarded twice", ZenEdgeError.UnknownOutcome, router.observe(outcome, 0.9))
            await self.fails("no such outcome", ZenEdgeError.UnknownOutcome, router.observe("what", 0.9))
            learning = router.learning()
            self.check("learning comes back", await router.restore_learning(learning) is None)
            self.check("damaged learning is told", await router.restore_learning(b"damaged") is not None)
            await router.restore_learning(learning)
            self.check("forgotten", router.forget_user("ann") and not router.forget_user("ann"))
            self.check("conversation forgotten", router.forget_conversation("c"))
            stats = router.stats()
            self.say("stats", stats.routed, stats.reasons.get("too_hot", 0), stats.users, stats.failed)

    async def generating(self):
        async with await self.load() as router:
            options = GenerateOptions(max_tokens=12)
            generation = await router.generate("Once upon a time", options)
            pieces = [piece async for piece in generation]
            generated = await generation.finish()
            self.check("pieces make the text", generated.text.startswith("".join(pieces)))
            ids = ",".join(map(str, generated.ids))
            self.say("generated", generated.prompt_tokens, camel(generated.reason.name), ids)
            await self.fails("finished twice", ZenEdgeError.BadRequest, generation.finish())
            generation = await router.generate("Once upon a time", options)
            generation.stop()
            self.check("stopped", [piece async for piece in generation] == [])
            self.say("stopped", camel((await generation.finish()).reason.name))
            turns = [Message(role="user", content="hello")]
            await self.fails("no template", ZenEdgeError.Template, router.generate(turns))

    async def choosing(self):
        router = await self.load()
        question, options = "Is the sky blue? Answer:", [" yes", " no", " perhaps not"]
        plain = await router.choose(question, options)
        free = await router.choose(question, options, ChooseOptions(content_free="Is N/A? Answer:", by_token=True))
        for name, choices in (("choice", plain), ("choice by token", free)):
            for choice in choices:
                bits = [double(x) for x in (choice.probability, choice.log_likelihood, choice.content_free)]
                self.say(name, choice.option, *bits, choice.tokens)
        self.check("probabilities sum to one", abs(sum(choice.probability for choice in plain) - 1) < 1e-12)
        await self.fails("no options", ZenEdgeError.BadRequest, router.choose(question, []))
        await self.fails("the same options", ZenEdgeError.BadRequest, router.choose(question, [" a", " a"]))
        token = CancelToken()
        token.cancel()
        await self.fails("choose cancelled", ZenEdgeError.Cancelled, router.choose(question, options, token=token))
        router.close()
        await self.fails("choose after close", ZenEdgeError.Closed, router.choose(question, options))

    async def closing(self):
        router = await self.load()
        session = router.session()
        generation = await router.generate("Once upon a time")
        busy = asyncio.create_task(router.route(LONG))
        waiting = asyncio.create_task(router.route("Waiting. " + LONG))
        await asyncio.sleep(0)
        router.close()
        router.close()
        self.check("closed twice", router.closed)
        await self.fails("waiting at the close", ZenEdgeError.Closed, waiting)
        await asyncio.gather(busy, return_exceptions=True)
        await self.fails("route after close", ZenEdgeError.Closed, router.route("hello"))
        await self.fails("embed after close", ZenEdgeError.Closed, router.embed("hello"))
        await self.fails("session after close", ZenEdgeError.Closed, session.update("hello"))
        await self.fails("generate after close", ZenEdgeError.Closed, router.generate("hello"))
        await self.fails("next after close", ZenEdgeError.Closed, generation.__anext__())

        async def stats():
            router.stats()

        await self.fails("stats after close", ZenEdgeError.Closed, stats())
        router.trim(TrimLevel.WEIGHTS)
        router.set_foreground(False)

        # Twenty cycles leave nothing behind that grows.
        async def cycle():
            async with await self.load() as router:
                await router.route(self.prompts[0])

        for _ in range(3):
            await cycle()
        before = resident()
        for _ in range(20):
            await cycle()
        gc.collect()
        self.check("twenty cycles", resident() - before < 24 << 20)

    async def run(self):
        await self.loading()
        await self.sources()
        await self.answers()
        await self.cancelling()
        await self.lifecycle()
        await self.generating()
        await self.choosing()
        await self.closing()


def resident():
    """Bytes of this process that are in memory and belong to no file; 0 where the system does not say."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))
    except (OSError, StopIteration):
        return 0


def main():
    pack, prompts, out = sys.argv[1:]
    with open(prompts, encoding="utf-8") as file:
        scenario = Scenario(pack, file.read().splitlines())
    asyncio.run(scenario.run())
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        file.write("\n".join(scenario.lines) + "\n")
    print(f"{len(scenario.lines)} lines")


if __name__ == "__main__":
    main()
