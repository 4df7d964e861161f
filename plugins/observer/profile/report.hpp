// An account as a table for people and as JSON for programs.
#pragma once

#include "account.hpp"

#include <string>

namespace tenon::profile {

/// Returns the phases, then the `rows` most expensive layers; "" for an account without slots.
std::string table(const Account& account, std::size_t rows);
/// Returns everything, in seconds per slot; see README.md for the keys.
std::string json(const Account& account);

}  // namespace tenon::profile
