"""The reward models that a configuration names, each with the settings that hold for it."""

from __future__ import annotations

from dataclasses import dataclass

from reward_loop.config import RewardModelConfig
from reward_loop.config_rollout import RolloutConfig
from reward_loop.config_serving import ModelKind, ScoringConfig
from reward_loop.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One reward model; `name` is what requests call it, `replicas` None where the machine's size decides."""

    name: str
    path: str
    tokenizer_path: str
    kind: ModelKind
    trust_remote_code: bool
    replicas: int | None
    rollout: RolloutConfig
    scoring: ScoringConfig


def served_models(settings: RewardModelConfig) -> list[ServedModel]:
    """Return the models in order, `model` or those of `models`; ConfigError if there is none."""
    single = settings.model
    if single.path is not None:
        name, tokenizer = single.name or single.path, single.tokenizer_path or single.path
        rest = (single.kind, single.trust_remote_code, settings.replicas, settings.rollout, settings.scoring)
        return [ServedModel(name, single.path, tokenizer, *rest)]
    if not settings.models:
        raise ConfigError("there is no reward model to serve; set reward_model.model.path or reward_model.models")
    # What nobody set stays unset, for some defaults hold on GPUs only.
    rollout, scoring = settings.rollout.model_dump(exclude_unset=True), settings.scoring.model_dump(exclude_unset=True)
    return [
        ServedModel(
            name,
            named.path,
            named.tokenizer_path or named.path,
            named.kind,
            named.trust_remote_code,
            named.replicas or 1,
            RolloutConfig.model_validate(rollout | named.rollout),
            ScoringConfig.model_validate(scoring | named.scoring),
        )
        for name, named in settings.models.items()
    ]
