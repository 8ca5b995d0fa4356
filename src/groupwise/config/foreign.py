"""What TRL and Hugging Face trainers call our settings, for the hint beside an unknown key."""

from __future__ import annotations

from groupwise import registry
from groupwise.config.keys import by_last_part

OTHERS = {
    "num_generations": "rollout.group_size",
    "max_completion_length": "rollout.max_new_tokens",
    "max_prompt_length": "prompts.max_prompt_tokens",
    "per_device_train_batch_size": "rollout.prompts_per_step",
    "generation_batch_size": "rollout.prompts_per_step",
    "gradient_accumulation_steps": "training.micro_batch_tokens",
    "beta": "objective.kl.beta",
    "epsilon": "objective.surrogate.low",
    "epsilon_high": "objective.surrogate.high",
    "loss_type": "objective.aggregation",
    "scale_rewards": "objective.advantage",
    "importance_sampling_level": "objective.ratio",
    "mask_truncated_completions": "objective.truncated",
    "num_iterations": "training.updates_per_batch",
    "max_steps": "training.steps",
    "num_train_epochs": "training.epochs",
    "learning_rate": "training.learning_rate",
    "lr": "training.learning_rate",
    "lr_scheduler_type": "training.schedule",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "top_k": "rollout.top_k",
    "min_p": "rollout.min_p",
    "reward_funcs": "rewards",
    "reward_weights": "rewards",
    "model_name_or_path": "model.name",
    "bf16": "model.precision",
    "gradient_checkpointing_kwargs": "training.gradient_checkpointing",
    "torch_compile": "training.compile",
    "attn_implementation": "model.attention",
    "peft_config": "lora",
    "load_in_4bit": "memory.quantise",
    "bnb_4bit_quant_type": "memory.quantise",
    "bnb_4bit_use_double_quant": "memory.quantise_scales",
    "lora_r": "lora.rank",
    "lora_alpha": "lora.alpha",
    "output_dir": "run.dir",
    "overwrite_output_dir": "run.overwrite",
    "report_to": "run.sinks",
    "max_length": "dpo.max_response_tokens",
    "eval_steps": "evaluate.every_steps",
    "eval_strategy": "evaluate.every_steps",
    "eval_on_start": "evaluate.at_start",
    "model_init_kwargs": "model.dtype",
    "num_generations_eval": "evaluate.samples",
    "shuffle_dataset": "prompts.shuffle",
    "steps_per_generation": "training.mini_batches",
    "delta": "objective.surrogate.dual",
    "multi_objective_aggregation": "rewards",
    "entropy_coef": "objective.entropy_bonus",
    "use_bias_correction_kl": "objective.kl.estimator",
    "log_completions": "run.save_rollouts",
    "adam_beta1": "training.adam_betas",
    "adam_beta2": "training.adam_betas",
    "adam_epsilon": "training.adam_eps",
    "save_steps": "checkpoint.every_steps",
    "save_strategy": "checkpoint.every_steps",
    "save_total_limit": "checkpoint.keep_last",
    "use_vllm": "rollout.engine",
    "vllm_server_base_url": "rollout.vllm.base_url",
    "vllm_server_host": "rollout.vllm.base_url",
    "vllm_server_port": "rollout.vllm.port",
    "vllm_server_timeout": "rollout.vllm.start_seconds",
    "vllm_model_impl": "rollout.vllm.arguments",
    "vllm_gpu_memory_utilization": "rollout.vllm.arguments",
    "vllm_max_model_length": "rollout.vllm.arguments",
    "vllm_tensor_parallel_size": "rollout.vllm.arguments",
    "vllm_importance_sampling_correction": "objective.correction_cap",
    "vllm_importance_sampling_clip_max": "objective.correction_cap",
    "vllm_importance_sampling_cap": "objective.correction_cap",
    "train_dataset": "prompts.train",
    "eval_dataset": "prompts.held_out",
}
"""Their name to ours."""

_NOTES = {
    "per_device_train_batch_size": "which counts prompts; there it counts completions",
    "generation_batch_size": "which counts prompts; there it counts completions",
    "gradient_accumulation_steps": "which bounds memory and changes nothing else",
    "epsilon": "and objective.surrogate.high",
    "loss_type": "with objective.advantage and objective.surrogate beside it; `groupwise explain grpo` shows all",
    "scale_rewards": "group_zscore divides by the std, group_mean does not",
    "reward_funcs": "a list of names such as [numeric] or [rewards.py:function]",
    "reward_weights": "each with a weight, as in {name: numeric, weight: 0.5}",
    "multi_objective_aggregation": "with normalise: group at each, and objective.advantage: batch_zscore",
    "use_vllm": "vllm",
    "use_bias_correction_kl": "k3_ratio for true, k3 for false",
    "load_in_4bit": "nf4, below lora",
    "bf16": "bfloat16 or float32; the weights stay in float32",
}


def hint_for(key: str) -> str | None:
    """A question for a key that other trainers have, or None: `did you mean rollout.group_size?`."""
    if key not in OTHERS:
        return None
    return f"did you mean {OTHERS[key]}?" + (f" ({_NOTES[key]})" if key in _NOTES else "")


def setting_for(word: str) -> str | None:
    """The dotted key that a bare word such as `learning-rate` or `num_generations` means, or None."""
    if word in OTHERS:
        return OTHERS[word]
    last = by_last_part()
    near = registry.nearest(word.rsplit(".", 1)[-1], last)
    if near is None:
        last, near = OTHERS, registry.nearest(word, OTHERS)
    return last[near] if near else None
