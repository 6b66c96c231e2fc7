#include "models/expert_groups.h"

namespace tokamak {

void ParseExpertGroups(ConfigReader& reader, int64_t num_groups, int64_t top_groups,
                       RouterConfig& router) {
  router.num_groups = reader.IntOr("n_group", num_groups, Positive(router.num_experts));
  router.top_groups = reader.IntOr("topk_group", top_groups, Positive(router.num_groups));
  const int32_t group_size = router.num_experts / router.num_groups;
  if (router.num_experts % router.num_groups != 0) {
    reader.Fail("n_group", "does not divide n_routed_experts");
  } else if (router.group_score == RouterConfig::GroupScore::kTwoBest && group_size < 2) {
    reader.Fail(
        "n_group",
        "makes groups of one expert, but the score of a group is the sum of its two best experts");
  } else if (router.top_k > group_size * router.top_groups) {
    reader.Fail("topk_group", "leaves fewer experts than num_experts_per_tok");
  }
}

}  // namespace tokamak
