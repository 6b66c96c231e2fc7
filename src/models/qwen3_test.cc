// The Qwen3 families: every configuration field counts.
#include <gtest/gtest.h>

#include "models/testing/mutations.h"

namespace tokamak::testing {
namespace {

TEST(Qwen3, EveryFieldChangesTheLogits) {
  const std::string base = R"({
    "architectures": ["Qwen3ForCausalLM"], "hidden_act": "silu",
    "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256, "rope_theta": 1000.0, "tie_word_embeddings": false,
    "attention_bias": false, "use_sliding_window": true, "sliding_window": 20, "max_window_layers": 1
  })";
  ExpectFieldsCount(base, {{"hidden_act", "\"gelu_pytorch_tanh\""},
                           {"rms_norm_eps", "1e-2"},
                           {"rope_theta", "2000.0"},
                           {"tie_word_embeddings", "true"},
                           {"attention_bias", "true"},
                           {"head_dim", "12"},
                           {"num_key_value_heads", "4"},
                           {"num_attention_heads", "2"},
                           {"num_hidden_layers", "2"},
                           {"intermediate_size", "48"},
                           {"hidden_size", "32"},
                           {"use_sliding_window", "false"},
                           {"sliding_window", "19"},
                           {"max_window_layers", "2"},
                           {"layer_types", R"(["sliding_attention", "full_attention",
                                               "full_attention"])"}});
}

TEST(Qwen3Moe, EveryFieldOfTheExpertsChangesTheLogits) {
  const std::string base = R"({
    "architectures": ["Qwen3MoeForCausalLM"], "hidden_act": "silu",
    "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256, "rope_theta": 1000.0, "tie_word_embeddings": false,
    "moe_intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 2,
    "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "use_sliding_window": true, "sliding_window": 20, "max_window_layers": 2
  })";
  ExpectFieldsCount(base, {{"hidden_act", "\"gelu_pytorch_tanh\""},
                           {"moe_intermediate_size", "20"},
                           {"num_experts", "5"},
                           {"num_experts_per_tok", "3"},
                           {"norm_topk_prob", "false"},
                           {"decoder_sparse_step", "2"},
                           {"mlp_only_layers", "[1]"},
                           {"sliding_window", "19"},
                           {"use_sliding_window", "false"}});
}

}  // namespace
}  // namespace tokamak::testing
