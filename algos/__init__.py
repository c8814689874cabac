"""Learning from rollouts: packing, tree attention, advantages, losses and the trainer.

Data flows one way: rollouts → `packing` (one depth-first token sequence) → `logprobs` (through `attention`) → a
loss (`grpo`, `sft`) → `trainer`. This folder may import everything else in mixharness; nothing imports it.
"""
