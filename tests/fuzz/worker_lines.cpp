// Target: the lines between `tenon simulate` and its worker processes. An accepted line reads as the same
// when it is written again.
#include "input.hpp"
#include "simulate/messages.hpp"

#include <tenon/error.hpp>

namespace {

using namespace tenon;

template <typename Body>
void only_run_errors(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kRun, error.what());
  }
}

void take(const std::string& line) {
  only_run_errors([&] {
    const std::string order = simulate::order_line(simulate::parse_order(line));
    fuzz::require(simulate::order_line(simulate::parse_order(order.substr(0, order.size() - 1))) == order,
                  "another order after a round trip");
  });
  only_run_errors([&] {
    const std::string answer = simulate::answer_line(simulate::parse_answer(line));
    fuzz::require(answer.find('\n') == answer.size() - 1, "a line of two lines");
    fuzz::require(
        simulate::answer_line(simulate::parse_answer(answer.substr(0, answer.size() - 1))) == answer,
        "another answer after a round trip");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  simulate::Lines lines;
  only_run_errors([&] {
    // In two pieces, as a socket may deliver them.
    lines.add(text.substr(0, size / 2));
    lines.add(text.substr(size / 2));
    for (std::string line; lines.next(line);) take(line);
  });
  take(std::string(text));
  return 0;
}
