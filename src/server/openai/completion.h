// One request to /v1/completions or /v1/chat/completions, from its token ids to the last byte of
// its response.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "chat/tool_calls.h"
#include "server/openai/prepare.h"
#include "server/openai/response.h"
#include "server/text_maker.h"
#include "server/transport/mailbox.h"
#include "server/transport/response_writer.h"
#include "tokamak/engine.h"

namespace tokamak {

// Used only on the I/O thread, by the coroutine that handles the request.
class Completion {
 public:
  // Choice c of prompt p has index p * n + c. All references outlive it.
  Completion(Engine& engine, ResponseWriter& writer, PreparedCompletion prepared, ResponseHead head,
             const RequestLimits& limits, const TokenSizes& sizes, TextMaker& text_maker);
  // Cancels prompts that are still running.
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Submits every prompt. Returns the status of the first one that the engine refuses.
  Status Submit();
  // Writes the response, whole or as a stream. Returns when it is complete or the client has left.
  // Requires Submit.
  Awaitable<> Respond();

 private:
  // A choice of the response: all of it, or in a stream the part that has not been sent.
  struct Choice {
    ChoicePart part;
    int32_t text_offset = 0;               // code points of text so far
    std::vector<LogprobEntry> held;        // their text is held back by the engine
    std::unique_ptr<AnswerParser> parser;  // null: all text is content
    int32_t tool_calls = 0;                // so far
    size_t bytes = 0;                      // upper bound for the text of `part` and `held`
    bool started = false;                  // the engine has sent a chunk
    bool sent = false;                     // a part was sent to the client
  };

  // A chunk from the engine, with the index of its prompt.
  struct Arrival {
    size_t prompt = 0;
    OutputChunk chunk;
  };

  Awaitable<bool> WaitForChunks();
  Choice* Add(const Arrival& arrival);
  void PauseOrResume();
  void AddTokens(Choice& choice, const OutputChunk& chunk);
  void AddText(Choice& choice, AnswerPart part);
  void AddCall(Choice& choice, ToolCall call);
  std::string CallId(const Choice& choice, int32_t call) const;
  void AddBytes(Choice& choice, size_t bytes);
  size_t LogprobBytes(const TokenLogprobs& logprobs) const;
  Status TooLong() const;
  void AddPrompt(size_t prompt, Choice& choice, const OutputChunk& chunk);
  bool HasUnsent(const Choice& choice) const;
  Awaitable<bool> SendPart(Choice& choice);
  ChoicePart TakePart(Choice& choice);
  Awaitable<> RespondWhole();
  void Finish();
  ResponseTail Tail() const;
  int32_t CodePointsOf(const TokenLogprobs& logprobs) const;

  Engine& engine_;
  ResponseWriter& writer_;
  const CompletionRequest request_;
  const std::string client_;  // as in Request
  const std::vector<std::vector<int32_t>> prompts_;
  const std::vector<ImageData> images_;                      // of the only prompt
  const std::shared_ptr<const AnswerFormat> answer_format_;  // null: all text is content
  const size_t max_bytes_;
  const TokenSizes& sizes_;
  TextMaker& text_maker_;
  ResponseHead head_;
  std::vector<RequestId> requests_;  // [prompts]
  std::vector<Choice> choices_;      // [prompts * n]
  size_t open_ = 0;                  // choices that have not finished
  size_t kept_ = 0;                  // upper bound for unsent bytes of text
  Mailbox<Arrival> mail_;
  std::deque<Arrival> arrived_;          // taken out of mail_, not added yet
  std::optional<HttpResponse> failure_;  // ends the response
  bool paused_ = false;                  // the engine was told to pause
};

}  // namespace tokamak
