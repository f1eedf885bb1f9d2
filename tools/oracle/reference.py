"""Gemma 4 of Hugging Face transformers in fp32, which computes the golden logits. Needs PyTorch and
transformers 5 (the fixtures were made with PyTorch 2.11, transformers 5.17 and numpy 2.5)."""
import numpy as np

from shapes import config_of, tensors_of

# Names in the file and in transformers' state.
WHOLE = {"token_embd.weight": "model.embed_tokens.weight",
         "output_norm.weight": "model.norm.weight",
         "per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
         "per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
         "per_layer_proj_norm.weight": "model.per_layer_projection_norm.weight"}
LAYER = {"attn_norm.weight": "input_layernorm.weight",
         "attn_q.weight": "self_attn.q_proj.weight",
         "attn_q_norm.weight": "self_attn.q_norm.weight",
         "attn_k.weight": "self_attn.k_proj.weight",
         "attn_k_norm.weight": "self_attn.k_norm.weight",
         "attn_v.weight": "self_attn.v_proj.weight",
         "attn_output.weight": "self_attn.o_proj.weight",
         "post_attention_norm.weight": "post_attention_layernorm.weight",
         "ffn_norm.weight": "pre_feedforward_layernorm.weight",
         "ffn_gate.weight": "mlp.gate_proj.weight",
         "ffn_up.weight": "mlp.up_proj.weight",
         "ffn_down.weight": "mlp.down_proj.weight",
         "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
         "ffn_gate_inp.weight": "router.proj.weight",
         "ffn_gate_inp.scale": "router.scale",
         "ffn_down_exps.scale": "router.per_expert_scale",
         "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
         "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
         "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
         "ffn_gate_up_exps.weight": "experts.gate_up_proj",
         "ffn_down_exps.weight": "experts.down_proj",
         "inp_gate.weight": "per_layer_input_gate.weight",
         "proj.weight": "per_layer_projection.weight",
         "post_norm.weight": "post_per_layer_input_norm.weight",
         "layer_output_scale.weight": "layer_scalar"}


def state_name(tensor, layer):
    """What transformers calls a tensor; None where it computes the values itself."""
    if layer is None:
        return WHOLE.get(tensor)
    return f"model.layers.{layer}.{LAYER[tensor]}"


def state_of(name, values):
    """The model's state from values by name in the file."""
    state = {}
    for tensor, layer, file_name, _ in tensors_of(name):
        key = state_name(tensor, layer)
        if key:
            state[key] = values[file_name]
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def logits_of(name, values, tokens):
    """float32 [tokens][vocabulary], after the soft cap."""
    import torch
    from transformers.models.gemma4 import Gemma4ForCausalLM, Gemma4TextConfig
    config = Gemma4TextConfig(**config_of(name))
    config._attn_implementation = "eager"
    model = Gemma4ForCausalLM(config).float().eval()
    shapes = {key: value.shape for key, value in model.state_dict().items()}
    state = {key: torch.from_numpy(np.array(value)).reshape(shapes[key])
             for key, value in state_of(name, values).items()}
    model.load_state_dict(state)  # fails when any is missing or too many
    with torch.no_grad():
        found = model(torch.tensor([list(tokens)])).logits[0]
    return found.numpy().astype("<f4")
