# SPDX-License-Identifier: Apache-2.0 OR MIT
# Deterministic work for perl: hashes, regular expressions, closures, threads, pipes.
use strict;
use warnings;
use threads;

my $state = 12345;
sub next_number { return $state = ($state * 1103515245 + 12345) % 2147483648; }

my %words;
for my $i (1 .. 60000) {
    my $word = join '', map { chr(97 + next_number() % 26) } 1 .. 3;
    push @{ $words{$word} }, $i;
}
my @by_count = sort { @{ $words{$b} } <=> @{ $words{$a} } || $a cmp $b } keys %words;
print "words ", scalar(@by_count), "\n";
print "$_ ", scalar @{ $words{$_} }, "\n" for @by_count[0 .. 4];

my $text = join ' ', map { "$_=" . join(',', @{ $words{$_} }) } sort keys %words;
print "length ", length($text), "\n";
my $found = () = $text =~ /\b([a-m]{3})=\d+,(\d+)/g;
print "found $found\n";
(my $changed = $text) =~ s/(\d+)/sprintf('%x', $1)/ge;
print "changed ", length($changed), " ", unpack('%32C*', $changed), "\n";

my @closures = map { my $n = $_; sub { return $n += shift } } 1 .. 2000;
my $sum = 0;
$sum += $closures[ $_ % 2000 ]->($_) for 1 .. 20000;
print "sum $sum\n";

my @threads = map {
    my $seed = $_;
    threads->create(sub {
        my %own;
        $own{ ($_ * $seed) % 1009 } .= "x$_" for 1 .. 8000;
        return length join '', map { $own{$_} } sort { $a <=> $b } keys %own;
    });
} 1 .. 4;
print "thread ", $_->join, "\n" for @threads;

for my $round (1 .. 10) {
    my $child = open(my $pipe, '-|') // die "fork: $!";
    if ($child == 0) {
        my @lines = map { "line $_ of round $round" } 1 .. 500;
        print "$_\n" for reverse @lines;
        exit 0;
    }
    my @lines = <$pipe>;
    close $pipe or die "child: $?";
    die "lines of round $round" unless @lines == 500 && $lines[499] eq "line 1 of round $round\n";
}
print "pipes ok\n";
