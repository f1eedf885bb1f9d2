"""Gemma 4 and its drafters of Hugging Face transformers in fp32, which compute the golden logits.
Needs PyTorch and transformers 5 (the fixtures were made with PyTorch 2.11, transformers 5.17 and
numpy 2.5)."""
import numpy as np

import draft_shapes
import shapes

# Names in the file and in transformers' state.
WHOLE = {"token_embd.weight": "model.embed_tokens.weight",
         "output_norm.weight": "model.norm.weight",
         "per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
         "per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
         "per_layer_proj_norm.weight": "model.per_layer_projection_norm.weight",
         "nextn.pre_projection.weight": "pre_projection.weight",
         "nextn.post_projection.weight": "post_projection.weight"}
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


def state_of(family, name, values):
    """A state from values by name in the file. family: shapes or draft_shapes."""
    state = {}
    for tensor, layer, file_name, _ in family.tensors_of(name):
        key = state_name(tensor, layer)
        if key:
            state[key] = values[file_name]
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def filled(model, state):
    """The model in fp32 with this state, ready to compute."""
    import torch
    model = model.float().eval()
    shape_of = {key: value.shape for key, value in model.state_dict().items()}
    tensors = {key: torch.from_numpy(np.array(value)).reshape(shape_of[key])
               for key, value in state.items()}
    model.load_state_dict(tensors)  # fails when any is missing or too many
    return model


def target_of(name, values):
    from transformers.models.gemma4 import Gemma4ForCausalLM, Gemma4TextConfig
    config = Gemma4TextConfig(**shapes.config_of(name))
    config._attn_implementation = "eager"
    return filled(Gemma4ForCausalLM(config), state_of(shapes, name, values))


def drafter_of(name, values):
    from transformers.models.gemma4 import Gemma4TextConfig
    from transformers.models.gemma4_assistant import (Gemma4AssistantConfig,
                                                      Gemma4AssistantForCausalLM)
    config = Gemma4AssistantConfig(text_config=Gemma4TextConfig(**draft_shapes.config_of(name)),
                                   backbone_hidden_size=draft_shapes.width_of_target(name),
                                   use_ordered_embeddings=False)
    config._attn_implementation = "eager"  # of text_config too
    return filled(Gemma4AssistantForCausalLM(config), state_of(draft_shapes, name, values))


def logits_of(name, values, tokens):
    """float32 [tokens][vocabulary], after the soft cap."""
    import torch
    model = target_of(name, values)
    with torch.no_grad():
        found = model(torch.tensor([list(tokens)])).logits[0]
    return found.numpy().astype("<f4")


def draft_round(target, drafter, tokens, position, n_steps):
    """Logits and hidden states of the steps of one round. The cache holds tokens[:position], and
    step k is given the token at position + k, whatever the step before has drafted."""
    import torch
    ids = torch.tensor([list(tokens)])
    # Without a cache object nothing is cut off: keys and values of all positions come back.
    cached = target.model(ids[:, :position], use_cache=False, return_shared_kv_states=True)
    shared = {kind: (cached.shared_kv_states[kind][0], cached.shared_kv_states[kind][1])
              for kind in ("sliding_attention", "full_attention")}
    for keys, _ in shared.values():
        assert keys.shape[2] == position, f"{keys.shape[2]} keys instead of {position}"
    # Some versions' mask lets a local layer see one key more than the window has.
    keys, values = shared["sliding_attention"]
    shared["sliding_attention"] = keys[:, :, -shapes.WINDOW:], values[:, :, -shapes.WINDOW:]
    hidden, steps = cached.last_hidden_state[:, -1:], []
    for k in range(n_steps):
        embedding = target.model.embed_tokens(ids[:, position + k:position + k + 1])
        found = drafter(inputs_embeds=torch.cat([embedding, hidden], -1), shared_kv_states=shared,
                        position_ids=torch.tensor([[position]]))
        hidden = found.last_hidden_state
        steps.append((found.logits[0, 0].numpy(), hidden[0, 0].numpy()))
    return [np.stack(rows) for rows in zip(*steps)]


def drafts_of(name, values, draft_values, tokens, positions, n_steps):
    """float32 [positions][steps][vocabulary] and [positions][steps][width of the target]: logits,
    and hidden states that the next step gets."""
    import torch
    target, drafter = target_of(name, values), drafter_of(name, draft_values)
    with torch.no_grad():
        rounds = [draft_round(target, drafter, tokens, position, n_steps)
                  for position in positions]
    return [np.stack(rows).astype("<f4") for rows in zip(*rounds)]
