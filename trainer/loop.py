"""``ClusterAwareTrainer``: all ranks step, save and stop together, and resume at the next start."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad_norm_

from slurmkit.errors import SlurmkitError, StoppedError
from slurmkit.runtime.records import make_dirs
from slurmkit.runtime.signals import Stop, catch_signals
from trainer import state
from trainer.build import check_identity, deterministic, identity_of
from trainer.checkpoint import CheckpointStore
from trainer.control import Report
from trainer.distributed import Ranks, joined, set_threads
from trainer.events import EventLog, MetricLog, chain, log_samples
from trainer.gradients import check_summed
from trainer.identity import checkpoint_folder, finished, run_id, write_result
from trainer.resume import find_checkpoint
from trainer.samples import Feed, open_samples, order_checksum
from trainer.say import say
from trainer.start import make
from trainer.stop import stop_before_start, stop_life
from trainer.trouble import explained, of_system, shared, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmkit.config.training import Settings
    from slurmkit.runtime.jobenv import JobEnv
    from slurmkit.runtime.signals import SignalFlags
    from trainer.control import Agreed

__all__ = ["ClusterAwareTrainer", "train"]


def train(settings: Settings, env: JobEnv, flags: SignalFlags | None = None) -> int:
    """Train until the last step or a signal.

    Args:
        settings: the config.
        env: which rank of which job this is.
        flags: from :func:`~slurmkit.runtime.signals.catch_signals`, entered before torch was imported;
            made here if None.

    Returns:
        The exit code: 0 finished, or saved and requeued; 75 saved but not requeued; 143 saved after
        SIGTERM; 130 saved after SIGINT; an error's own code.
    """
    with contextlib.ExitStack() as stack:
        caught = flags if flags is not None else stack.enter_context(catch_signals())
        try:
            make_dirs(env.point_dir)
            set_threads(env)
            cuda = settings.trainer.device != "cpu" and torch.cuda.is_available()
            stack.enter_context(deterministic(on=settings.trainer.deterministic, cuda=cuda))
            with joined(env, settings.trainer.device, settings.trainer.rendezvous_seconds, caught) as ranks:
                return ClusterAwareTrainer(settings, env, ranks, caught).run()
        except StoppedError:
            return stop_before_start(env, caught)
        except SlurmkitError as error:
            tell(error, env)
            return error.exit_code
        except OSError as error:
            trouble = of_system(error)
            tell(trouble, env)
            return trouble.exit_code


class ClusterAwareTrainer:
    """One life of a run on one rank.

    Args:
        settings: the config.
        env: which rank of which job this is.
        ranks: all ranks, present.
        flags: the signals that came so far.
    """

    def __init__(self, settings: Settings, env: JobEnv, ranks: Ranks, flags: SignalFlags) -> None:
        self.settings = settings
        self.config = settings.trainer
        self.env = env
        self.ranks = ranks
        self.control = ranks.control
        self.flags = flags
        self.lead = env.rank == 0
        self.step = 0
        self.digest = ""
        self.loss = math.nan
        self._trouble: SlurmkitError | None = None
        self._saved_step = -1
        self._saved_at = time.monotonic()
        own = ""
        with self.control.together(ranks.nodes):
            if self.lead:
                own = json.dumps([secrets.token_hex(8), run_id(env.run_dir)])
        nonce, run = json.loads(self.control.broadcast(own.encode()))
        self.life = {**env.life(), "life": nonce}
        folder = checkpoint_folder(env, self.config.checkpoint.root, run)
        self.store = CheckpointStore(folder, self.config.checkpoint.keep, env.life(), nonce, run)
        self.events = EventLog(env.point_dir, self.life, active=self.lead)
        self.metrics = MetricLog(env.point_dir, self.life, active=self.lead)

    # -- one life ------------------------------------------------------------------------------------

    def run(self) -> int:
        """Train, or find that there is nothing left to do.

        Returns:
            The exit code.

        Raises:
            SlurmkitError: on every rank, if one of them cannot go on.
        """
        try:
            if self._is_finished():
                return 0
            with self._opened(), self._set_up():
                return self._loop()
        except Exception as error:
            told = explained(error, self.step + 1)
            self.events.emit("error", message=str(told), step=self.step)
            if told is error:
                raise
            raise told from error
        finally:
            with contextlib.suppress(OSError):
                self.metrics.flush()

    def _loop(self) -> int:
        steps, every = self.config.steps, self.config.checkpoint.every
        early = self._stop_before_the_first_step()
        if early and self.step < steps:
            return self._stop(early)
        while self.step < steps:
            agreed = self.control.exchange(self._train_step())
            self._record(agreed)
            stop = self._stop_of(agreed)
            due = any(one.save for one in agreed) or (every and self.step % every == 0)
            if (stop or due) and self.step < steps:
                rest = self.control.drain()
                self._record(rest)
                stop |= self._stop_of(rest)
                self._save()
                if stop:
                    return self._stop(stop)
        self._record(self.control.drain())
        return self._finish()

    def _stop_before_the_first_step(self) -> Stop:
        """Signals that came while the ranks were starting: no grace is spent on a step."""
        stop = Stop.NONE
        for said in self.control.gather(b"%d" % self.flags.stop.value):
            stop |= Stop(int(said))
        return stop

    @staticmethod
    def _stop_of(agreed: list[Agreed]) -> Stop:
        stop = Stop.NONE
        for one in agreed:
            stop |= one.stop
        return stop

    # -- start ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        with self.control.together(self.ranks.nodes):
            self.samples = open_samples(self.settings.data, self.env.submit_dir)
        self.identity = identity_of(self.settings, self.samples)
        try:
            yield
        finally:
            self.samples.close()

    def _is_finished(self) -> bool:
        """Slurm may requeue a run that has finished (in the grace of a preemption): say so, and end."""
        end = ""
        with self.control.together(self.ranks.nodes):
            if self.lead:
                end = finished(self.settings, self.env)
        if end:
            self._say(end)
        return bool(self.control.broadcast(end.encode()))

    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        config, env = self.config, self.env
        made = make(self.settings, env, self.ranks, self.samples)
        self.parts, self.order, self.ddp = made.parts, made.order, made.ddp
        self.model, self.optimizer, self.optim = made.model, made.optimizer, made.optim
        found, skipped = find_checkpoint(self.store, self.control, self.ranks.nodes, lead=self.lead)
        with self.control.together(self.ranks.nodes):
            saved = found[1]["identity"] if found else self.identity
            check_identity(saved, self.identity, f"the checkpoint {self.store.root}")
        for one in skipped:
            self.events.emit("skip", checkpoint=one.name, why=one.why)
            self._say(f"skipped checkpoint {one.name}: {one.why}")
        self._announce(found)
        if found is not None:
            tensors, facts = found
            state.restore_model(self.model, tensors)
            state.restore_optimizer(self.optimizer, tensors, facts)
            self.step, self.digest, self.loss = facts["step"], facts["samples"], facts["loss"]
            self._saved_step = self.step
        self.feed = Feed(
            self.samples,
            self.order,
            batch_size=config.batch_size,
            parts=self.parts,
            span=range(self.step, config.steps),
            workers=self.settings.data.workers,
        )
        # Last of all: whatever was made above may have drawn random numbers.
        if found is None or not state.restore_random_state(found[1], found[0], env.rank, self.ranks.device):
            state.seed_everything(config.seed, 1 + env.rank, self.step)
        try:
            yield
        finally:
            self.feed.close()

    def _announce(self, found: tuple[dict[str, torch.Tensor], dict[str, Any]] | None) -> None:
        env, nodes = self.env, list(dict.fromkeys(self.ranks.nodes))
        self.events.emit(
            "start", ranks=env.world_size, nodes=nodes, backend=self.ranks.backend, source=env.source
        )
        job = f"job {env.own_id} restart {env.restart}, " if env.in_slurm else ""
        size = sum(parameter.numel() for parameter in self.model.parameters())
        ranks = "1 rank" if env.world_size == 1 else f"{env.world_size} ranks"
        self._say(
            f"{self.settings.name}: {job}{ranks} on {', '.join(nodes)}, {self.ranks.backend}, "
            f"{size / 1e6:.2f} M parameters, {len(self.samples)} samples"
        )
        if found is not None:
            facts = found[1]
            self.events.emit(
                "resume", step=facts["step"], cursor=facts["cursor"], ranks_before=len(facts["rng"])
            )
            self._say(f"resumed after step {facts['step']}, at sample {facts['cursor']}")

    # -- a step --------------------------------------------------------------------------------------

    def _train_step(self) -> Report:
        began = time.perf_counter()
        step = self.step + 1
        if self.optim is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self._lr(step)
        losses, samples, order = [], 0, 0
        fed: dict[int, list[int]] = {}
        for turn, (first, count) in enumerate(self.parts):
            ids, inputs, targets = next(self.feed)
            last = turn == len(self.parts) - 1
            with contextlib.nullcontext() if last else self.ddp.no_sync():
                loss = self.ddp(inputs.to(self.ranks.device), targets.to(self.ranks.device))
                # DDP takes the mean over ranks; what is wanted is the mean over the samples of all of them.
                (loss * (count * self.env.world_size / self.config.batch_size)).backward()
            losses.append(loss.detach() * len(ids))
            samples += len(ids)
            place = self.step * self.config.batch_size + first
            order += order_checksum(place, ids)
            fed[place] = ids.tolist()
        check_summed(self.ddp, step)
        if self.config.log_samples:
            try:
                log_samples(self.env, self.life, step, fed)
            except OSError as error:
                self._trouble = of_system(error)
        healthy = self._clip()
        if healthy:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step = step
        loss_sum = float(sum(losses)) if healthy else math.nan
        interval = self.config.checkpoint.seconds
        due = self.lead and interval > 0 and time.monotonic() - self._saved_at > interval
        bad = self._trouble is not None
        return Report(step, loss_sum, samples, order, self.flags.stop, due, bad, time.perf_counter() - began)

    def _lr(self, step: int) -> float:
        own: float = self.optimizer.param_groups[0]["lr"]
        return self.optim.lr_at(step, self.config.steps) if self.optim else own

    def _clip(self) -> bool:
        """Whether the gradient is finite; it is the same on all ranks."""
        limit = (self.optim.clip if self.optim is not None else 0.0) or math.inf
        return bool(torch.isfinite(clip_grad_norm_(self.model.parameters(), limit)))

    def _record(self, agreed: list[Agreed]) -> None:
        for one in agreed:
            if one.trouble:
                with self.control.together(self.ranks.nodes):
                    if self._trouble is not None:
                        raise self._trouble
            if not math.isfinite(one.loss):
                words = f"the loss or the gradient of step {one.step} is not finite ({one.loss}); not saved"
                hint = "try a smaller optim.lr or optim.clip; the checkpoints before it are untouched"
                raise shared(SlurmkitError(words, hint))
            self.loss = one.loss
            self.digest = chain(self.digest, one.step, one.order)
            cursor = one.step * self.config.batch_size
            self.metrics.add(
                step=one.step,
                loss=one.loss,
                cursor=cursor,
                lr=self._lr(one.step),
                seconds=round(one.seconds, 6),
                samples=self.digest,
            )
            every = self.config.log_every
            if every and (one.step % every == 0 or one.step == self.config.steps):
                rate = one.samples / one.seconds if one.seconds else 0.0
                self._say(f"step {one.step}/{self.config.steps}  loss {one.loss:.4f}  {rate:.0f} samples/s")

    # -- save and stop -------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._saved_step == self.step:
            return
        began = time.monotonic()
        states = self.control.gather(state.random_state(self.ranks.device))
        size, folder = 0, None
        with self.control.together(self.ranks.nodes):
            if self.lead:
                files = state.pack(self.model, self.optimizer, states, self._facts())
                self.metrics.sync()  # steps that are committed are never done again
                folder = self.store.save(self.step, files)
                size = sum(map(len, files.values()))
        self._saved_step, self._saved_at = self.step, time.monotonic()
        if folder is not None:
            seconds = round(self._saved_at - began, 4)
            first = self.flags.first
            after = round(self._saved_at - first.monotonic, 4) if first else None
            self.events.emit(
                "checkpoint",
                step=self.step,
                seconds=seconds,
                bytes=size,
                path=str(folder),
                after_signal=after,
            )
            self._say(f"saved step {self.step} in {seconds:.2f} s: {folder}")

    def _facts(self) -> dict[str, Any]:
        cursor = self.step * self.config.batch_size
        position = {
            "step": self.step,
            "cursor": cursor,
            "epoch": cursor // len(self.samples),
            "samples": self.digest,
        }
        origin = {"life": self.env.life(), "world_size": self.env.world_size, "torch": torch.__version__}
        return {**position, "loss": self.loss, "identity": self.identity, **origin}

    def _stop(self, stop: Stop) -> int:
        """After the save: rank 0 asks Slurm why, and requeues the job if that is right."""
        said = b""
        if self.lead:
            said = b"%d" % stop_life(self.env, stop, self.step, self.flags, self.events)
        return int(self.control.broadcast(said))

    def _finish(self) -> int:
        self._save()
        with self.control.together(self.ranks.nodes):
            if self.lead:
                end = {"steps": self.step, "loss": self.loss, "samples": self.digest}
                proof = {
                    "parameters_sha256": state.digest_of(self.model),
                    "time": time.time(),
                    **self.env.life(),
                }
                own = {"name": self.settings.name, "identity": self.identity}
                result = {"state": "finished", **own, **end, **proof}
                write_result(self.env.point_dir, result)
        self.events.emit("finish", step=self.step, loss=self.loss)
        self._say(f"finished: step {self.step}, loss {self.loss:.4f}")
        return 0

    def _say(self, line: str) -> None:
        if self.lead:
            say(line)
