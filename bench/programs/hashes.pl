# Fills hashes of strings, of arrays and of hashes, deletes half, and sums up what is left.
#
#     hashes.pl KEYS ROUNDS
use strict;
use warnings;

my ($keys, $rounds) = @ARGV;

for my $round (1 .. $rounds) {
    my (%text, %group);
    for my $n (0 .. $keys - 1) {
        my $key = "key " . $n * 7919 % $keys;
        $text{$key} = "value of $key " . "x" x ($n % 50);
        push @{ $group{ $n % 1000 } }, { key => $key, length => length $text{$key} };
    }
    keys %text == $keys or die "round $round: keys are lost";
    delete @text{ map { "key $_" } grep { $_ % 2 } 0 .. $keys - 1 };

    my ($left, $lengths) = (0, 0);
    for my $items (values %group) {
        for my $item (@$items) {
            my $value = $text{ $item->{key} } // next;
            $left++;
            $lengths += length($value) - $item->{length};
        }
    }
    $left == int(($keys + 1) / 2) && $lengths == 0 or die "round $round: $left values are left, lengths differ by $lengths";
    my $words = join " ", map { "$_=$text{$_}" } sort keys %text;
    my @fields = split /=value of /, $words;
    @fields == $left + 1 or die "round $round: " . @fields . " fields";
}
