% What programs.py asks of SWI-Prolog: work in several threads, then what the allocator says of itself, a line each.

queens(N, Qs) :- numlist(1, N, Ns), permutation(Ns, Qs), safe(Qs).

safe([]).
safe([Q|Qs]) :- apart(Q, Qs, 1), safe(Qs).

apart(_, [], _).
apart(Q, [P|Ps], D) :- abs(Q - P) =\= D, E is D + 1, apart(Q, Ps, E).

% Atoms are taken from malloc, and a thread's stacks grow by realloc.
sum(N, S) :-
    numlist(1, N, L),
    findall(A-X, (member(X, L), atom_concat(key_, X, A)), Pairs),
    list_to_assoc(Pairs, Tree),
    assoc_to_values(Tree, Values),
    sum_list(Values, S).

in_threads(Count, N) :-
    findall(Id, (between(1, Count, _), thread_create((sum(N, S), thread_exit(S)), Id)), Ids),
    forall(member(Id, Ids), (thread_join(Id, Status), print(Status), nl)).

% The thread tells the allocator before and after that it rests (MallocExtension_MarkThreadIdle, ...Busy).
rests :-
    thread_create(thread_idle(thread_get_message(go), long), Id),
    sleep(0.1),
    thread_send_message(Id, go),
    thread_join(Id, Status),
    print(Status), nl.

property(Name, Value) :- malloc_property(P), P =.. [Name, Value].

properties :- forall(property(Name, Value), (write(Name), write(' '), write(Value), nl)).

main :-
    queens(8, Qs), print(Qs), nl,
    F is 3 ** 20000, string_length(F, Digits), print(Digits), nl,
    in_threads(4, 30000),
    rests,
    properties,
    set_malloc('tcmalloc.max_total_thread_cache_bytes'(8388608)),
    trim_heap,
    write(trimmed), nl,
    properties.
