// The home of vtable and typeinfo of the interfaces that every plugin meets: one canonical copy, in the core.
// Alone, for builds of readers without the loader (tests/fuzz).
#include <tenon/host.hpp>
#include <tenon/options.hpp>

TENON_ABI_BEGIN

Actor::~Actor() = default;
Host::~Host() = default;
Options::~Options() = default;

TENON_ABI_END
