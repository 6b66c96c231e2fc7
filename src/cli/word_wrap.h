// Breaks text between words where a terminal's line ends, while the text arrives.
#pragma once

#include <string>
#include <string_view>

namespace tokamak::cli {

// Columns of the terminal that stdout is; 0 where it is none, or does not say.
int TerminalColumns();

// Every method gives what is to be printed now. A word is held back until it is known where it
// ends, so that no word is broken unless it is longer than a line. The blanks where a line is
// broken are left out, nothing else is. What is not UTF-8 counts as one column a byte.
class WordWrap {
 public:
  // The text's next piece, for a terminal of so many columns; 0: nothing is broken or held back.
  std::string Append(std::string_view text, int columns);
  // The text has ended.
  std::string Finish();

 private:
  void AppendCharacter(std::string_view character, int width);
  // Prints the word that is held back, on the next line if it does not fit on this one.
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
