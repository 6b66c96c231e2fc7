// The requests of /v1/embeddings: what they ask, and their answers.
#pragma once

#include <string>
#include <vector>

#include "tokamak/embed.h"
#include "tokamak/status.h"

namespace tokamak {

struct OpenAiEmbeddingRequest {
  std::string model;                // empty: whichever is served
  EmbeddingRequest engine_request;  // inputs as the client sent them
  bool base64 = false;              // vectors as the base64 of little-endian f32; else as numbers
  bool timings = false;             // extension: where the time went, beside the usage
  std::vector<std::string> unknown_fields;
};

// Errors as those of request.h.
Result<OpenAiEmbeddingRequest> ParseEmbeddingRequest(const std::string& body);
std::vector<std::string> KnownEmbeddingFields();

// The fields of an answer that come from its request.
struct EmbeddingHead {
  std::string model;
  std::string system_fingerprint;
  bool base64 = false;
  bool timings = false;
};
// The size of one vector of an answer at most.
size_t EmbeddingBytes(size_t dimensions, bool base64);
std::string FormatEmbeddings(const EmbeddingHead& head, const EmbeddingOutput& output);

}  // namespace tokamak
