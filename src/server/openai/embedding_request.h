// Requests to /v1/embeddings and their responses, as JSON.
#pragma once

#include <string>
#include <vector>

#include "tokamak/embed.h"
#include "tokamak/status.h"

namespace tokamak {

struct OpenAiEmbeddingRequest {
  std::string model;                // empty: the one that is served
  EmbeddingRequest engine_request;  // with the inputs as the client sent them
  bool base64 = false;              // vectors as the base64 of little-endian f32; else as numbers
  bool timings = false;             // extension: adds times to the usage
  std::vector<std::string> unknown_fields;
};

// Errors are those of request.h.
Result<OpenAiEmbeddingRequest> ParseEmbeddingRequest(const std::string& body);
std::vector<std::string> KnownEmbeddingFields();

// Fields of a response that come from its request.
struct EmbeddingHead {
  std::string model;
  std::string system_fingerprint;
  bool base64 = false;
  bool timings = false;
};
// Returns an upper bound for the bytes of one vector in a response.
size_t EmbeddingBytes(size_t dimensions, bool base64);
std::string FormatEmbeddings(const EmbeddingHead& head, const EmbeddingOutput& output);

}  // namespace tokamak
