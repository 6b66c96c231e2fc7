#include "server/text_maker.h"

#include <cstdint>
#include <utility>

#include "server/transport/mailbox.h"

namespace tokamak {

TextMaker::TextMaker()
    : pool_({.small_bytes = kShortText * 16,
             .max_small_waiting = SIZE_MAX,
             .max_large_waiting = SIZE_MAX}) {}

Awaitable<std::optional<std::string>> TextMaker::Make(ResponseWriter& writer, size_t bytes,
                                                      std::function<std::string()>&& make) {
  Mailbox<std::string> made(writer);
  ++making_;
  // Push only fails after Stop, when nobody waits for a response.
  (void)pool_.Push(bytes, [make = std::move(make), sender = made.sender()](LowPriorityPool::JobId) {
    sender.Put(make());
  });
  std::optional<std::string> text = co_await made.TakeOne(writer);
  if (--making_ == 0 && on_idle_) {
    // Posted, so that it runs after the caller has written this text.
    boost::asio::post(writer.io(), std::exchange(on_idle_, nullptr));
  }
  co_return text;
}

void TextMaker::WhenIdle(std::function<void()> on_idle) {
  if (making_ == 0) return on_idle();
  on_idle_ = std::move(on_idle);
}

void TextMaker::Stop() {
  on_idle_ = nullptr;
  pool_.Stop();
}

}  // namespace tokamak
