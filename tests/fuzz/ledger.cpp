// Target: the ledger of a family of questions. The input is read as it is, and once more with the right link
// at the end of each line: otherwise no input would pass it. An accepted ledger reads as the same when it is
// written again, and its levels are those of the rule.
#include "ab/ledger.hpp"
#include "input.hpp"

#include <tenon/error.hpp>

namespace {

using namespace tenon;

void take(const std::string& text) {
  try {
    const ab::LedgerBook book = ab::parse_ledger(text, "input");
    const std::string again = ab::ledger_text(book);
    const ab::LedgerBook second = ab::parse_ledger(again, "again");
    fuzz::require(ab::ledger_text(second) == again, "another text after a round trip");
    fuzz::require(second.questions.size() == book.questions.size() &&
                      second.discoveries() == book.discoveries() && second.events == book.events,
                  "another ledger after a round trip");
    double shares = 0;
    std::size_t discoveries = 0;
    for (const ab::Question& q : book.questions) {
      shares += ab::share_of(q.index);
      discoveries += q.answer && q.answer->discovery;
      fuzz::require(q.level > 0 && q.discoveries < q.index, "a level that the rule does not give");
    }
    fuzz::require(shares <= 1 && discoveries == book.discoveries(), "more is shared out than there is");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kRun, error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text = fuzz::text_of(data, size);
  take(std::string(text));
  std::string whole, link;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    const std::string linked = ab::linked_line(link, line);
    link = linked.substr(linked.size() - 18, 16);
    whole += linked + "\n";
  }
  take(whole);
  return 0;
}
