// Target: texts that rewards read, any bytes. What is found is a number and part of the text, and an
// expression of one number has its value.
#include "input.hpp"
#include "numbers.hpp"

#include <numeric>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  using namespace tenon::reward_basic;
  const std::string_view text = fuzz::text_of(data, size);
  const auto sound = [](const Fraction& value) {
    fuzz::require(value.denominator > 0, "a denominator that is not positive");
    fuzz::require(std::gcd(static_cast<std::uint64_t>(value.denominator),
                           value.numerator < 0 ? 0 - static_cast<std::uint64_t>(value.numerator)
                                               : static_cast<std::uint64_t>(value.numerator)) == 1,
                  "a fraction that is not in lowest terms");
  };
  const char* before = text.data();
  for (const std::string_view number : numbers_in(text)) {
    fuzz::require(number.data() >= before && number.data() + number.size() <= text.data() + text.size(),
                  "a number outside the text, or over the one before");
    before = number.data() + number.size();
    const auto value = read_number(number);
    fuzz::require(value.has_value() || number.size() > 18, "a number that is none");
    if (value) sound(*value);
    const auto evaluated = evaluate(number);
    fuzz::require(evaluated == value, "an expression of one number with another value");
  }
  if (const auto value = evaluate(text)) sound(*value);
  return 0;
}
