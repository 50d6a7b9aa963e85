// What an output may be, token by token.
#pragma once

#include <cstdint>
#include <optional>

namespace ultrafast {

// Asked by one thread at a time, not always the same. Anything that it throws ends its sequence alone.
class Constraint {
 public:
  virtual ~Constraint() = default;

  // Follows the output by `token`, none at its beginning, and sets bit t % 32 of allowed[t / 32] for every token t that may be
  // next, of words that are all 0. One call, since each may have to wait for its turn.
  virtual void advance(std::optional<int32_t> token, uint32_t* allowed) = 0;
};

}  // namespace ultrafast
