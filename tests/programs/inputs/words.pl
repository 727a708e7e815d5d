# Hashes, strings, sorting, regular expressions, closures, threads: prints only what does not depend on hash order.
use strict;
use warnings;
use threads;
use Digest::SHA qw(sha256_hex);

my $seed = 12345;
sub roll { $seed = ($seed * 1103515245 + 12345) % 2147483648; return $seed >> 8; }

my (%count, @lines);
for my $n (1 .. 40000) {
    my @words = map { "w" . (roll() % 5000) . ("x" x (roll() % 40)) } 1 .. 6;
    $count{$_}++ for @words;
    push @lines, join(" ", @words);
    splice(@lines, 0, 5000) if @lines > 20000;
}
my @top = (sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count)[0 .. 19];
print "$_ $count{$_}\n" for @top;
print scalar(keys %count), " ", sha256_hex(join("\n", sort @lines)), "\n";

my $text = join("\n", @lines);
my $hits = 0;
$hits++ while $text =~ /w(\d+)5x{3,9}\b/g;
(my $changed = $text) =~ s/(\w)(\d+)/$2$1/g;
print "$hits ", length($changed), " ", sha256_hex($changed), "\n";

my %tree;
push @{ $tree{$_ % 97}{$_ % 31} }, { id => $_, name => "n$_" x ($_ % 13) } for 1 .. 30000;
delete $tree{$_} for grep { $_ % 2 } keys %tree;
my $sum = 0;
for my $row (values %tree) { $sum += length($_->{name}) for map { @$_ } values %$row; }
print "$sum\n";

my @workers = map { my $base = $_; threads->create(sub {
    my %own = map { ($base * 100000 + $_) => "v" x ($_ % 50) } 1 .. 15000;
    my $total = 0;
    $total += length for values %own;
    return $total;
}) } 1 .. 4;
print join(" ", map { $_->join } @workers), "\n";

my @children;
for my $n (1 .. 3) {
    my $pid = open(my $pipe, "-|") // die "fork: $!";
    if (!$pid) { print length(join(",", map { $_ * $n } 1 .. 20000)), "\n"; exit 0; }
    push @children, $pipe;
}
print map { scalar <$_> } @children;
