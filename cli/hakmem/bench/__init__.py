"""hakmem bench: every workload under every allocator, interleaved, and a report of it.

workloads   reads bench/workloads.toml
allocators  the system's malloc, hakmem and its peers
facts       the machine, the commit
plan        who runs what, and when: fixed before the first run, so that a stopped benchmark can go on
journal     writes each finished run immediately
runner      does one run
figures     what a workload measures itself
analysis    medians, ratios, geometric means, intervals, outliers, losses
plots, report   what a reader sees
command     the command line, which ties these together
"""
