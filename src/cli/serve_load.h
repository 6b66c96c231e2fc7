// Putting load on a server and measuring what comes back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/json_output.h"
#include "server/transport/http_caller.h"
#include "tokamak/status.h"

namespace tokamak::cli {

struct ServeLoad {
  Url url;
  std::string model;    // named in each request; empty: none is
  std::string api_key;  // empty: none
  bool chat = true;     // /v1/chat/completions, else /v1/completions
  int32_t requests = 64;
  // One of the two: how many run at a time, or how many begin in a second (as a Poisson process).
  int32_t concurrency = 0;
  double rate = 0;
  TokenRange input = {100, 100};   // words of a prompt after the shared ones
  TokenRange output = {128, 128};  // tokens
  int32_t shared_prefix = 0;       // words that all prompts begin with
  int32_t seed = 0;                // of lengths, words and arrivals; the shared words do not change
  double timeout_seconds = 600;    // without a byte
};

// Runs all requests, each streamed, and waits for their ends. Requests that fail are counted; an
// error is returned only for a host that cannot be found.
Result<ServeBenchResult> RunServeLoad(const ServeLoad& load);

// `count` words, most of which are one token each in the vocabularies of English-speaking models.
std::string RandomWords(int32_t count, uint64_t* state);

}  // namespace tokamak::cli
