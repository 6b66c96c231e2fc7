// Routers that first choose groups of experts, and then experts of these groups.
#pragma once

#include <cstdint>

#include "ops/moe.h"
#include "weights/config_reader.h"

namespace tokamak {

// Reads n_group and topk_group into a router whose other fields are set. `num_groups` and
// `top_groups` are the defaults. Records an error if the groups do not fit the router's experts.
void ParseExpertGroups(ConfigReader& reader, int64_t num_groups, int64_t top_groups,
                       RouterConfig& router);

}  // namespace tokamak
