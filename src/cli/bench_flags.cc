#include "cli/bench_flags.h"

#include <utility>

#include "base/error.h"

namespace tokamak::cli {
namespace {

Status ParseRange(const std::string& text, TokenRange* range) {
  std::string list = text;
  if (const size_t colon = list.find(':'); colon != std::string::npos) list[colon] = ',';
  const Result<std::vector<int32_t>> ends = ParseIntList(list);
  const bool valid = ends.ok() && (ends->size() == 1 || ends->size() == 2) && ends->front() >= 1 &&
                     ends->front() <= ends->back();
  if (!valid) {
    return InvalidArgument("\"{}\" is not a number or range of tokens such as 100 or 100:1024",
                           text);
  }
  *range = {ends->front(), ends->back()};
  return Status();
}

}  // namespace

void AddRange(Flags& flags, const std::string& name, TokenRange& range, const std::string& help) {
  const std::string standard = range.low == range.high
                                   ? fmt::format("{}", range.low)
                                   : fmt::format("{}:{}", range.low, range.high);
  flags.AddParsed(
      name, "LOW:HIGH", [&range](const std::string& text) { return ParseRange(text, &range); },
      fmt::format("{} (default {})", help, standard));
}

}  // namespace tokamak::cli
