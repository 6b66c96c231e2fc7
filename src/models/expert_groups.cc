#include "models/expert_groups.h"

namespace tokamak {

void ParseExpertGroups(ConfigReader& reader, int64_t num_groups, int64_t top_groups,
                       ExpertGate& gate) {
  gate.num_groups =
      static_cast<int32_t>(reader.IntOr("n_group", num_groups, Positive(gate.num_experts)));
  gate.top_groups =
      static_cast<int32_t>(reader.IntOr("topk_group", top_groups, Positive(gate.num_groups)));
  const int32_t group_size = gate.num_experts / gate.num_groups;
  if (gate.num_experts % gate.num_groups != 0) {
    reader.Fail("n_group", "does not divide n_routed_experts");
  } else if (gate.group_score == ExpertGate::GroupScore::kTwoBest && group_size < 2) {
    reader.Fail("n_group", "makes groups of one expert; the two best of each group are compared");
  } else if (gate.top_k > group_size * gate.top_groups) {
    reader.Fail("topk_group", "leaves fewer experts than num_experts_per_tok");
  }
}

}  // namespace tokamak
