// One call of /v1/completions or /v1/chat/completions, from its parsed form to the last byte of its
// answer.
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

// Used on the I/O thread alone, by the coroutine that answers the writer.
class Completion {
 public:
  // Choice c of prompt p is index p * n + c. All references outlive it.
  Completion(Engine& engine, ResponseWriter& writer, PreparedCompletion prepared, ResponseHead head,
             const RequestLimits& limits, const TokenSizes& sizes, TextMaker& text_maker);
  // Cancels what still runs.
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Submits every prompt. Returns the status of the first one that the engine refuses.
  Status Submit();
  // After Submit: answers the writer, whole or as a stream. Returns when that is done, or the
  // client has left.
  Awaitable<> Respond();

 private:
  // A choice of the answer: whole when it is not streamed, else what has not been sent yet.
  struct Choice {
    ChoicePart part;
    int32_t text_offset = 0;               // code points of text so far
    std::vector<LogprobEntry> held;        // of tokens whose text the engine holds back
    std::unique_ptr<AnswerParser> parser;  // null: its text is content
    int32_t tool_calls = 0;                // so far
    size_t bytes = 0;                      // of text that `part` and `held` take at most
    bool started = false;                  // the engine has sent something of it
    bool sent = false;                     // and so have we
  };

  // A chunk of the engine's, with the index of its prompt.
  struct Arrival {
    size_t prompt = 0;
    OutputChunk chunk;
  };

  Awaitable<bool> WaitForChunks();
  Choice* Add(const Arrival& arrival);
  void PauseOrResume();
  void AddTokens(Choice& choice, const OutputChunk& chunk);
  void AddText(Choice& choice, AnswerPart part);
  std::string CallId(const Choice& choice) const;
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
  const std::shared_ptr<const AnswerFormat> answer_format_;  // null: texts are content
  const size_t max_bytes_;
  const TokenSizes& sizes_;
  TextMaker& text_maker_;
  ResponseHead head_;
  std::vector<RequestId> requests_;  // [prompts]
  std::vector<Choice> choices_;      // [prompts * n]
  size_t open_ = 0;                  // choices that have not finished
  size_t kept_ = 0;                  // bytes of text at most that are not sent yet
  Mailbox<Arrival> mail_;
  std::deque<Arrival> arrived_;          // taken out of it
  std::optional<HttpResponse> failure_;  // the answer ends with it
  bool paused_ = false;                  // the engine was told so
};

}  // namespace tokamak
