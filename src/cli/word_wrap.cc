#include "cli/word_wrap.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <utility>

namespace tokamak::cli {
namespace {

constexpr int kTabStop = 8;

}  // namespace

int TerminalColumns() {
  winsize size = {};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string WordWrap::Append(std::string_view text, int columns) {
  if (columns <= 0) return Finish() + std::string(text);  // for the previous width
  columns_ = columns;
  while (!text.empty()) {
    utf8proc_int32_t character = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         static_cast<utf8proc_ssize_t>(text.size()), &character);
    const size_t bytes = length > 0 ? static_cast<size_t>(length) : 1;
    AppendCharacter(text.substr(0, bytes), length > 0 ? utf8proc_charwidth(character) : 1);
    text.remove_prefix(bytes);
  }
  return std::exchange(out_, "");
}

std::string WordWrap::Finish() {
  PlaceWord();
  const std::string rest = out_ + blanks_;
  *this = WordWrap();
  return rest;
}

void WordWrap::AppendCharacter(std::string_view character, int width) {
  const char first = character.front();
  if (first == '\n') {
    PlaceWord();
    out_ += std::exchange(blanks_, "") + "\n";
    column_ = blank_width_ = 0;
    in_long_word_ = false;
  } else if (first == ' ' || first == '\t') {
    PlaceWord();
    blanks_ += first;
    blank_width_ += first == ' ' ? 1 : kTabStop - (column_ + blank_width_) % kTabStop;
    in_long_word_ = false;
  } else if (width > 1) {
    // Chinese and Japanese have no blanks between words: a line may break before and after each
    // character.
    PlaceWord();
    in_long_word_ = false;
    word_ = character;
    word_width_ = width;
    PlaceWord();
  } else if (width == 0 && word_.empty() && blanks_.empty()) {
    out_ += character;  // combines with the previous character
  } else {
    word_ += character;
    word_width_ += width;
    if (word_width_ < columns_) return;
    PlaceWord();
    in_long_word_ = true;
  }
}

void WordWrap::PlaceWord() {
  if (word_.empty()) return;
  if (!in_long_word_ && column_ > 0 && column_ + blank_width_ + word_width_ > columns_) {
    out_ += '\n';
    blanks_.clear();
    column_ = blank_width_ = 0;
  }
  out_ += std::exchange(blanks_, "") + std::exchange(word_, "");
  column_ += std::exchange(blank_width_, 0) + std::exchange(word_width_, 0);
  if (column_ > columns_) column_ = (column_ - 1) % columns_ + 1;  // the terminal has wrapped it
}

}  // namespace tokamak::cli
