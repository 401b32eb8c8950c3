"""What a model would cost on a GPU, found out on a machine without one.

`jengine compile` lowers every program that an engine would run and compiles it for
a described card, through jax's device-less topology and the CUDA plugin. `survey`
plans what there is to compile, `worker` compiles it in a process of its own (some
rejections abort), `supervisor` survives that, and `report` and `table` say what was
found. `targets.json` holds the cards.
"""
