// A token may complete several stop texts; the answer ends before the one that begins first.
#include <tenon/sdk/answer_text.hpp>

#include <algorithm>

TENON_ABI_BEGIN

bool AnswerText::add(std::string_view bytes) {
  const std::size_t before = text_.size();
  text_ += bytes;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t from = before - std::min(before, stop.size() - 1);
    end = std::min(end, text_.find(stop, from));
  }
  if (end == std::string::npos) return true;
  text_.resize(end);
  stopped_ = true;
  return false;
}

std::string_view AnswerText::take(bool all) {
  const std::size_t until = text_.size() - (all || stopped_ ? 0 : open());
  const std::string_view part = std::string_view(text_).substr(taken_, until - taken_);
  taken_ = until;
  return part;
}

std::size_t AnswerText::open() const {
  std::size_t most = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, text_.size()); length > most; --length) {
      if (text_.ends_with(std::string_view(stop).substr(0, length))) most = length;
    }
  }
  return most;
}

TENON_ABI_END
