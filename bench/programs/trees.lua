-- Builds and drops binary trees of tables while one long-lived tree and an array of strings stay.
--
--     trees.lua DEPTH

local function build(depth)
  if depth == 0 then return {} end
  return { build(depth - 1), build(depth - 1) }
end

local function count(tree)
  if not tree[1] then return 1 end
  return 1 + count(tree[1]) + count(tree[2])
end

local deepest = tonumber(arg[1])
local kept, labels = build(deepest), {}

for depth = 4, deepest, 2 do
  local rounds, nodes = 1 << (deepest - depth), 0
  for round = 1, rounds do
    nodes = nodes + count(build(depth))
    labels[#labels + 1] = "depth " .. depth .. " round " .. round
  end
  assert(nodes == rounds * ((2 << depth) - 1), "a tree of depth " .. depth .. " has lost nodes")
end

assert(count(kept) == (2 << deepest) - 1, "the tree that was kept has lost nodes")
assert(#table.concat(labels) > 0 and #labels[1] == #"depth 4 round 1", "the labels are damaged")
