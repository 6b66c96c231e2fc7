// Routers that choose groups of experts first, and experts of these groups then.
#pragma once

#include <cstdint>

#include "ops/moe.h"
#include "weights/config_reader.h"

namespace tokamak {

// Reads n_group and topk_group into a router whose other fields are set; the numbers are what
// absence means. Groups out of which the router could not choose its experts are noted in the
// reader.
void ParseExpertGroups(ConfigReader& reader, int64_t num_groups, int64_t top_groups,
                       RouterConfig& router);

}  // namespace tokamak
