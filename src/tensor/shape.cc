#include "tensor/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

namespace tokamak {

std::string Shape::ToString() const {
  return fmt::format("[{}]", fmt::join(std::span(dims_.data(), static_cast<size_t>(rank_)), ", "));
}

}  // namespace tokamak
