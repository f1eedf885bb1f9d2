/* Every tensor of the family, once: name, shape, when it must be there.
 *
 * X(field, name, rows, cols, n_expert, need), with `c` the gemma_config and, in the layer list,
 * `s` the layer_spec: expressions. A vector has rows = 1 and is kept as F32. `need` is MUST,
 * MAY (optional), or NEVER (skipped when present: K/V of a layer that shares another's). */
#ifndef MODEL_TENSOR_LIST_H
#define MODEL_TENSOR_LIST_H

#define MODEL_TENSOR_LIST(X)                                                                       \
    X(token_embd, "token_embd.weight", c->n_vocab, c->n_embd, 1, MUST)                             \
    X(output, "output.weight", c->n_vocab, c->n_embd, 1, MAY)                                      \
    X(output_norm, "output_norm.weight", 1, c->n_embd, 1, MUST)                                    \
    X(pre_projection, "nextn.pre_projection.weight", c->n_embd, 2 * c->n_backbone, 1,              \
      c->n_backbone ? MUST : NEVER)                                                                \
    X(post_projection, "nextn.post_projection.weight", c->n_backbone, c->n_embd, 1,                \
      c->n_backbone ? MUST : NEVER)                                                                \
    X(rope_freqs, "rope_freqs.weight", 1, c->head_dim_global / 2, 1, MUST)                         \
    X(ple_embd, "per_layer_token_embd.weight", c->n_vocab, c->n_ple * c->n_layer, 1,               \
      c->n_ple ? MUST : NEVER)                                                                     \
    X(ple_proj, "per_layer_model_proj.weight", c->n_ple * c->n_layer, c->n_embd, 1,                \
      c->n_ple ? MUST : NEVER)                                                                     \
    X(ple_proj_norm, "per_layer_proj_norm.weight", 1, c->n_ple, 1, c->n_ple ? MUST : NEVER)

#define LAYER_TENSOR_LIST(X)                                                                       \
    X(attn_norm, "attn_norm.weight", 1, c->n_embd, 1, MUST)                                        \
    X(attn_q, "attn_q.weight", s->n_heads * s->head_dim, c->n_embd, 1, MUST)                       \
    X(attn_k, "attn_k.weight", s->n_kv_heads * s->head_dim, c->n_embd, 1,                          \
      s->has_kv ? MUST : NEVER)                                                                    \
    X(attn_v, "attn_v.weight", s->n_kv_heads * s->head_dim, c->n_embd, 1,                          \
      s->has_kv && !s->k_eq_v ? MUST : NEVER)                                                      \
    X(attn_output, "attn_output.weight", c->n_embd, s->n_heads * s->head_dim, 1, MUST)             \
    X(attn_q_norm, "attn_q_norm.weight", 1, s->head_dim, 1, MUST)                                  \
    X(attn_k_norm, "attn_k_norm.weight", 1, s->head_dim, 1, s->has_kv ? MUST : NEVER)              \
    X(attn_post_norm, "post_attention_norm.weight", 1, c->n_embd, 1, MUST)                         \
    X(ffn_norm, "ffn_norm.weight", 1, c->n_embd, 1, MUST)                                          \
    X(ffn_gate, "ffn_gate.weight", s->n_ff, c->n_embd, 1, MUST)                                    \
    X(ffn_up, "ffn_up.weight", s->n_ff, c->n_embd, 1, MUST)                                        \
    X(ffn_down, "ffn_down.weight", c->n_embd, s->n_ff, 1, MUST)                                    \
    X(ffn_post_norm, "post_ffw_norm.weight", 1, c->n_embd, 1, MUST)                                \
    X(layer_scale, "layer_output_scale.weight", 1, 1, 1, MAY)                                      \
    X(ple_gate, "inp_gate.weight", c->n_ple, c->n_embd, 1, c->n_ple ? MUST : NEVER)                \
    X(ple_up, "proj.weight", c->n_embd, c->n_ple, 1, c->n_ple ? MUST : NEVER)                      \
    X(ple_post_norm, "post_norm.weight", 1, c->n_embd, 1, c->n_ple ? MUST : NEVER)                 \
    X(router, "ffn_gate_inp.weight", c->n_expert, c->n_embd, 1, c->n_expert ? MUST : NEVER)        \
    X(router_scale, "ffn_gate_inp.scale", 1, c->n_embd, 1, c->n_expert ? MUST : NEVER)             \
    X(expert_norm, "pre_ffw_norm_2.weight", 1, c->n_embd, 1, c->n_expert ? MUST : NEVER)           \
    X(dense_post_norm, "post_ffw_norm_1.weight", 1, c->n_embd, 1, c->n_expert ? MUST : NEVER)      \
    X(expert_post_norm, "post_ffw_norm_2.weight", 1, c->n_embd, 1, c->n_expert ? MUST : NEVER)     \
    X(expert_gate_up, "ffn_gate_up_exps.weight", 2 * c->n_ff_expert, c->n_embd, c->n_expert,       \
      c->n_expert ? MAY : NEVER)                                                                   \
    X(expert_gate, "ffn_gate_exps.weight", c->n_ff_expert, c->n_embd, c->n_expert,                 \
      c->n_expert ? MAY : NEVER)                                                                   \
    X(expert_up, "ffn_up_exps.weight", c->n_ff_expert, c->n_embd, c->n_expert,                     \
      c->n_expert ? MAY : NEVER)                                                                   \
    X(expert_down, "ffn_down_exps.weight", c->n_embd, c->n_ff_expert, c->n_expert,                 \
      c->n_expert ? MUST : NEVER)                                                                  \
    X(expert_scale, "ffn_down_exps.scale", 1, c->n_expert, 1, c->n_expert ? MAY : NEVER)

#endif
