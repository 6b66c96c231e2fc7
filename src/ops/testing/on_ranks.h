// Runs the ranks of a group as threads of this process. For tests.
#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/host/communicator.h"

namespace tokamak::testing {

// Calls run(communicator) on each rank and returns the results by rank. Values are handed over in
// small pieces, so that tests exchange several.
template <typename Run>
auto OnRanks(int32_t size, Run run) {
  auto group = MakeThreadGroup({.size = size, .slot_bytes = 4096});
  CHECK_MSG(group.ok(), group.status().ToString());
  std::vector<decltype(run(std::shared_ptr<Communicator>()))> results(group->size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < group->size(); ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = run(std::shared_ptr<Communicator>(std::move((*group)[rank])));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace tokamak::testing
