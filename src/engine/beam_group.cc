#include "engine/beam_group.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tokamak {

int32_t BeamGroup::FreePlace() const {
  for (int32_t place = 0; place < width(); ++place) {
    const auto has = [place](const Beam& beam) { return beam.place == place; };
    if (std::none_of(beams.begin(), beams.end(), has)) return place;
  }
  CHECK_MSG(false, "more beams than places");
}

std::vector<int32_t> BeamGroup::Succeed(std::vector<Beam> chosen, int32_t num_computed) {
  const auto after = search.beams();
  CHECK(chosen.size() == after.size());
  std::vector<bool> kept(static_cast<size_t>(width()), false);
  for (size_t i = 0; i < chosen.size(); ++i) {
    chosen[i].source = beams[static_cast<size_t>(after[i].parent)].place;
    const auto source = static_cast<size_t>(chosen[i].source);
    chosen[i].place = kept[source] ? -1 : chosen[i].source;
    kept[source] = true;
  }
  std::vector<int32_t> left;
  for (const Beam& beam : beams) {
    if (!kept[static_cast<size_t>(beam.place)]) left.push_back(beam.place);
  }
  beams = std::move(chosen);
  base = num_computed;
  forks = true;
  const auto token = [&](size_t beam) {
    return after[beam].tokens[static_cast<size_t>(num_common)];
  };
  const auto length = static_cast<int32_t>(after[0].tokens.size());
  for (; num_common < length; ++num_common) {
    size_t equal = 1;
    while (equal < after.size() && token(equal) == token(0)) ++equal;
    if (equal < after.size()) break;
  }
  return left;
}

void BeamGroup::Suspend(int32_t num_prompt) {
  for (Place& place : others) place = {};
  for (Beam& beam : beams) {
    beam.place = -1;
    beam.source = 0;
  }
  beams[0].place = 0;
  base = num_prompt + num_common;
  forks = base < num_prompt + static_cast<int32_t>(search.beams()[0].tokens.size());
  searching = false;
  candidates.clear();
}

}  // namespace tokamak
