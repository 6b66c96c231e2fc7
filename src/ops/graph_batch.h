// Which batches fit a graph that was captured for another batch.
#pragma once

#include <cstdint>

namespace tokamak {

// A graph fits any batch with as many tokens, and as many sequences, as the batch for which it was
// captured, provided that both numbers are equal and that no sequence has more queries than this.
// Where some have several, others have none. A sequence that verifies 16 drafts, the most that an
// engine allows, has so many queries.
inline constexpr int32_t kMaxGraphQueries = 17;

}  // namespace tokamak
