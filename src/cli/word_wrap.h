// Breaks text between words at a terminal's line ends, while the text arrives.
#pragma once

#include <string>
#include <string_view>

namespace tokamak::cli {

// Columns of the terminal that is stdout; 0 if it is not a terminal or its width is unknown.
int TerminalColumns();

// Each method returns what to print now. A word is held back until its end is known, so only words
// longer than a line are broken. Only the blanks where a line breaks are dropped. Each byte that is
// not UTF-8 counts as one column.
class WordWrap {
 public:
  // Adds text, for a terminal of `columns` columns; 0: nothing is broken or held back.
  std::string Append(std::string_view text, int columns);
  std::string Finish();

 private:
  void AppendCharacter(std::string_view character, int width);
  // Prints the held word, on the next line if it does not fit on this one.
  void PlaceWord();

  std::string out_;
  std::string blanks_;  // before the word
  std::string word_;
  int columns_ = 0;
  int column_ = 0;  // where `blanks_` begin
  int blank_width_ = 0;
  int word_width_ = 0;
  bool in_long_word_ = false;  // a part of it has been printed
};

}  // namespace tokamak::cli
