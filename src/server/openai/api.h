// The paths of OpenAI's API.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/access.h"
#include "server/openai/completion.h"
#include "server/openai/prepare.h"
#include "server/preparation.h"
#include "server/text_maker.h"
#include "server/transport/response_writer.h"
#include "tokamak/server.h"

namespace tokamak {

// Used only on the I/O thread.
class OpenAiApi {
 public:
  struct Options {
    std::string model_id;  // the name that clients use
    AnswerParsers parsers;
    RequestLimits requests;
    ImageSources images;
  };
  // Parts of the server that all protocols share. They outlive the object.
  struct Shared {
    ServedModel served;
    const Access& access;
    Preparation& preparation;
    TextMaker& text_maker;
  };
  OpenAiApi(const Shared& shared, Options options);

  static constexpr std::array<std::string_view, 5> kPostPaths = {
      "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"};
  static bool IsGetPath(std::string_view path);

  // Answers a GET request of such a path.
  void Get(ResponseWriter& writer) const;
  // Answers a POST request to one of kPostPaths whose body is JSON. Returns when the response is
  // complete or the client has left.
  Awaitable<> Post(ResponseWriter& writer);
  // Number of ignored fields in all requests so far.
  int64_t unknown_fields() const { return unknown_fields_; }

 private:
  Awaitable<> Complete(ResponseWriter& writer, bool chat);
  Awaitable<> Embed(ResponseWriter& writer);
  // Adds its `images` to a prepared request.
  template <typename Prepared>
  Awaitable<Result<Prepared>> AddImages(Preparation::Pending& pending, Result<Prepared>& prepared,
                                        std::vector<MessageImage>& images);
  // Fetches those that are on the web.
  Awaitable<Status> FetchImages(Preparation::Pending& pending, std::vector<MessageImage>& images);
  Awaitable<> Tokenize(ResponseWriter& writer, bool back);
  // Makes the `completion` of a request and submits it to the engine.
  Status Submit(ResponseWriter& writer, PreparedCompletion prepared,
                std::optional<Completion>& completion);
  // Returns "cmpl-" and digits that no other response has.
  std::string NextId(std::string_view kind);
  // Counts ignored fields, and logs each name once.
  void NoteIgnored(const std::vector<std::string>& names);
  HttpResponse Refusal(const Status& status) const;

  const Shared shared_;
  LoadedModel& loaded_;
  const Options options_;
  const int64_t started_;  // seconds since 1970
  const Preparer preparer_;
  uint64_t next_id_ = 0;
  const uint64_t id_salt_;  // makes response ids differ between runs
  int64_t unknown_fields_ = 0;
  std::set<std::string> logged_fields_;  // at most kMaxLoggedFields names
};

}  // namespace tokamak
