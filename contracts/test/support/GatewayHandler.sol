// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization, Authorizations} from "../../src/gateway/Authorizations.sol";
import {Batches} from "../../src/gateway/Batches.sol";
import {BurnIntent} from "../../src/gateway/BurnIntent.sol";
import {InstantWithdrawals} from "../../src/gateway/InstantWithdrawals.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {EventLedger} from "./EventLedger.sol";
import {GatewayTest} from "./GatewayTest.sol";
import {ReferenceLedger} from "./ReferenceLedger.sol";
import {Account, Domain, Signer} from "./Signer.sol";
import {Vm, vm} from "./Vm.sol";

/// What is wrong with a payment, if anything.
enum Flaw {
    None,
    Forged,
    Twin,
    OtherChain,
    OtherGateway,
    ChangedValue,
    Expired,
    NotYetValid,
    ZeroValue,
    ToOneself,
    ToNobody,
    AboveBalance
}

/// @title GatewayHandler
///
/// @notice Everything that can happen to a gateway, one function each, with any numbers. The fuzzer calls these in any
///         order; each tells the model what should follow and fails when the gateway does otherwise.
contract GatewayHandler is GatewayTest {
    using Signer for Authorization;
    using Signer for BurnIntent;

    uint256 private constant ROWS_MAX = 6;
    uint256 private constant JOURNAL_MAX = 256;
    uint256 private constant VALUE_MAX = 20 * USDC;

    ReferenceLedger public model;
    EventLedger public events;

    /// What never reached the gateway by a deposit: plain transfers to its address.
    uint256 public stray;
    /// Payments of each flaw that settled all the same.
    mapping(Flaw flaw => uint256 count) public settledDespite;
    uint256 public batchCount;
    uint256 public rowCount;
    uint256 public settledCount;
    uint256 public skippedCount;

    /// Every payment ever signed, sent or not: what the service has in its database.
    struct Entry {
        Authorization row;
        Flaw flaw;
    }

    Entry[] private journal;
    Account[] private people;
    Authorization[] private lastBatch;
    BurnIntent[] private intents;
    mapping(address account => uint64 sequence) private nextSequence;

    uint256 private clock = NOW;
    uint256 private height = BLOCK;

    constructor() {
        setUp();
        model = new ReferenceLedger(address(gateway));
        events = new EventLedger();
        people.push(alice);
        people.push(bob);
        people.push(seller);
        people.push(mallory);
        people.push(relayer);
        for (uint256 i = 0; i < people.length; ++i) {
            _fund(people[i], 1e12);
        }
    }

    /// Time and block number do not survive from one call of the fuzzer to the next, so each call sets its own.
    modifier step() {
        vm.chainId(CHAIN_ID);
        vm.warp(clock);
        vm.roll(height);
        vm.recordLogs();
        _;
        events.read(vm.getRecordedLogs(), address(gateway));
    }

    // Actions

    function passTime(uint256 secondsSeed, uint256 blocksSeed) external {
        clock += _bound(secondsSeed, 1, 3 days);
        height += _bound(blocksSeed, 1, WITHDRAWAL_DELAY);
    }

    function togglePause(uint256 seed) external step {
        if (gateway.paused()) {
            vm.prank(owner);
            gateway.unpause();
        } else if (seed % 3 == 0) {
            _pause();
        }
    }

    function deposit(uint256 who, uint256 value) external step {
        Account memory account = _person(who);
        value = _bound(value, 1, VALUE_MAX);
        bool open = _expectOpen();
        vm.prank(account.addr);
        gateway.deposit(USDC_ADDRESS, value);
        if (open) model.deposit(account.addr, value);
    }

    function depositFor(uint256 who, uint256 whom, uint256 value) external step {
        address depositor = _person(whom).addr;
        value = _bound(value, 1, VALUE_MAX);
        bool open = _expectOpen();
        vm.prank(_person(who).addr);
        gateway.depositFor(USDC_ADDRESS, depositor, value);
        if (open) model.deposit(depositor, value);
    }

    function depositWithAuthorization(uint256 who, uint256 value) external step {
        Account memory account = _person(who);
        Authorization memory row =
            _payment(account.addr, address(gateway), _bound(value, 1, VALUE_MAX), nextSequence[account.addr]++);
        bytes memory signature = row.receiveSignature(account.key, _usdcDomain());
        bool open = _expectOpen();
        gateway.depositWithAuthorization(
            USDC_ADDRESS, row.from, row.value, row.validAfter, row.validBefore, row.nonce, signature
        );
        if (open) model.deposit(account.addr, row.value);
    }

    function sendPastTheGateway(uint256 who, uint256 value) external step {
        value = _bound(value, 1, VALUE_MAX);
        vm.prank(_person(who).addr);
        usdc.transfer(address(gateway), value);
        stray += value;
    }

    /// Signs payments and settles them, good ones and bad ones mixed.
    function settle(uint256 seed) external step {
        _submit(_sign(seed));
    }

    /// The service crashes after signing: the rows are in its journal and nowhere else.
    function signAndCrash(uint256 seed) external step {
        _sign(seed);
    }

    /// The service comes back and settles what the chain does not know, some of which it may have sent before.
    function recover(uint256 from) external step {
        _submit(_unsettled(from, ROWS_MAX));
    }

    /// Rows that were sent before, settled or not, are sent again among new ones.
    function settleAgain(uint256 seed, uint256 from) external step {
        Entry[] memory again = _entries(from, 3);
        Entry[] memory fresh = _sign(seed);
        Entry[] memory rows = new Entry[](again.length + fresh.length);
        for (uint256 i = 0; i < rows.length; ++i) {
            rows[i] = i < again.length ? again[i] : fresh[i - again.length];
        }
        _submit(rows);
    }

    /// The relayer lost the answer to its last transaction and sends the very same one again.
    function resendLastBatch() external step {
        uint64 lastBatchId = gateway.lastBatchId();
        if (lastBatchId == 0 || gateway.paused()) return;
        vm.expectRevert(abi.encodeWithSelector(Batches.BatchOutOfSequence.selector, lastBatchId, lastBatchId + 1));
        vm.prank(relayer.addr);
        gateway.settleBatch(lastBatchId, RECEIPT_ROOT, lastBatch);
    }

    function initiateWithdrawal(uint256 who, uint256 value) external step {
        Account memory account = _person(who);
        uint256 most = model.available(account.addr);
        if (most == 0) return;
        value = _bound(value, 1, most);
        _initiateWithdrawal(account, value);
        model.initiateWithdrawal(account.addr, value, block.number + WITHDRAWAL_DELAY);
    }

    /// Takes out what is due, and sees that what is not due stays.
    function withdraw(uint256 who) external step {
        Account memory account = _person(who);
        bool due =
            model.withdrawing(account.addr) > 0 && block.number >= model.withdrawalBlock(account.addr);
        uint256 walletBefore = usdc.balanceOf(account.addr);
        vm.prank(account.addr);
        try gateway.withdraw(USDC_ADDRESS) {
            vm.assertTrue(due, "paid out before it was due");
            uint256 value = model.withdraw(account.addr);
            vm.assertEq(usdc.balanceOf(account.addr) - walletBefore, value, "paid another sum than was due");
        } catch {
            vm.assertTrue(!due, "kept what was due");
        }
    }

    function instantWithdraw(uint256 who, uint256 value, bytes32 salt) external step {
        Account memory account = _person(who);
        uint256 most = model.total(account.addr);
        if (most == 0) return;
        BurnIntent memory intent = _intent(account.addr, account.addr, _bound(value, 1, most), salt);
        if (gateway.isTransferSpecUsed(Signer.transferSpecHash(intent.spec))) return;
        bytes memory signature = intent.intentSignature(account.key);
        bool open = _expectOpen();
        vm.prank(relayer.addr);
        gateway.instantWithdraw(intent, signature);
        if (!open) return;
        model.instantWithdraw(account.addr, intent.spec.value);
        intents.push(intent);
    }

    function instantWithdrawAgain(uint256 which) external step {
        if (intents.length == 0 || gateway.paused()) return;
        BurnIntent memory intent = intents[which % intents.length];
        // Signed anew with a later end: still the same transfer.
        intent.maxBlockHeight = block.number + 1;
        Account memory account = _holder(address(uint160(uint256(intent.spec.sourceDepositor))));
        bytes memory signature = intent.intentSignature(account.key);
        vm.expectRevert(
            abi.encodeWithSelector(InstantWithdrawals.IntentUsed.selector, Signer.transferSpecHash(intent.spec))
        );
        vm.prank(relayer.addr);
        gateway.instantWithdraw(intent, signature);
    }

    // What the invariants ask

    function peopleCount() external view returns (uint256) {
        return people.length;
    }

    function person(uint256 index) external view returns (address) {
        return people[index].addr;
    }

    function journalLength() external view returns (uint256) {
        return journal.length;
    }

    function journalRow(uint256 index) external view returns (address from, bytes32 nonce) {
        return (journal[index].row.from, journal[index].row.nonce);
    }

    function target() external view returns (address gatewayAddress, address usdcAddress) {
        return (address(gateway), USDC_ADDRESS);
    }

    /// Sends everything that the chain does not know until nothing more of it settles. Returns how often it had to.
    function recoverAll() external step returns (uint256 passes) {
        if (gateway.paused()) {
            vm.prank(owner);
            gateway.unpause();
        }
        uint256 before;
        do {
            before = settledCount;
            _submit(_unsettled(0, JOURNAL_MAX));
            passes += 1;
        } while (settledCount != before);
    }

    /// Sends everything again, known or not.
    function resendAll() external step {
        _submit(_entries(0, JOURNAL_MAX));
    }

    // How

    function _person(uint256 seed) private view returns (Account memory) {
        return people[seed % people.length];
    }

    function _holder(address account) private view returns (Account memory holder) {
        for (uint256 i = 0; i < people.length; ++i) {
            if (people[i].addr == account) holder = people[i];
        }
    }

    /// Whether the gateway takes the next call; when it is paused, the next call must say so.
    function _expectOpen() private returns (bool open) {
        open = !gateway.paused();
        if (!open) vm.expectRevert(Pausable.EnforcedPause.selector);
    }

    /// Signs between one and `ROWS_MAX` payments and writes them into the journal. Half of them are good.
    function _sign(uint256 seed) private returns (Entry[] memory entries) {
        uint256 count = journal.length < JOURNAL_MAX - ROWS_MAX ? 1 + seed % ROWS_MAX : 0;
        entries = new Entry[](count);
        for (uint256 i = 0; i < count; ++i) {
            uint256 random = uint256(keccak256(abi.encode(seed, i)));
            Flaw flaw = random % 2 == 0 ? Flaw.None : Flaw((random >> 8) % (uint256(type(Flaw).max) + 1));
            entries[i] = Entry(_flawed(flaw, random >> 16), flaw);
            journal.push(entries[i]);
        }
    }

    function _flawed(Flaw flaw, uint256 random) private returns (Authorization memory row) {
        Account memory from = _person(random);
        address to = people[(random % people.length + 1 + (random >> 8) % (people.length - 1)) % people.length].addr;
        row = _payment(from.addr, to, 1 + (random >> 16) % VALUE_MAX, nextSequence[from.addr]++);
        Domain memory domain = _gatewayDomain();
        uint256 key = from.key;

        if (flaw == Flaw.Forged) key = from.key + 1;
        if (flaw == Flaw.OtherChain) domain.chainId += 1;
        if (flaw == Flaw.OtherGateway) domain.verifyingContract = to;
        if (flaw == Flaw.Expired) row.validBefore = block.timestamp;
        if (flaw == Flaw.NotYetValid) row.validAfter = type(uint256).max - 1;
        if (flaw == Flaw.ZeroValue) row.value = 0;
        if (flaw == Flaw.ToOneself) row.to = row.from;
        if (flaw == Flaw.ToNobody) row.to = random % 3 == 0 ? address(0) : address(gateway);
        if (flaw == Flaw.AboveBalance) row.value = type(uint256).max - random % 1e30;
        row = row.signed(key, domain);
        if (flaw == Flaw.ChangedValue) row.value += 1;
        if (flaw == Flaw.Twin) {
            row.s = bytes32(0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141 - uint256(row.s));
            row.v = row.v == 27 ? 28 : 27;
        }
    }

    /// Settles these rows as the next batch, and sees that each did what the model says.
    function _submit(Entry[] memory entries) private {
        Authorization[] memory rows = new Authorization[](entries.length);
        for (uint256 i = 0; i < rows.length; ++i) {
            rows[i] = entries[i].row;
        }
        // What happened before is read first, so that the log of this batch stands alone.
        events.read(vm.getRecordedLogs(), address(gateway));
        uint64 batchId = gateway.lastBatchId() + 1;
        bool open = _expectOpen();
        vm.prank(relayer.addr);
        gateway.settleBatch(batchId, RECEIPT_ROOT, rows);
        if (!open) return;

        batchCount += 1;
        rowCount += rows.length;
        delete lastBatch;
        for (uint256 i = 0; i < rows.length; ++i) {
            lastBatch.push(rows[i]);
        }
        _check(entries, vm.getRecordedLogs());
    }

    function _check(Entry[] memory entries, Vm.Log[] memory logs) private {
        uint256 next = 0;
        for (uint256 i = 0; i < entries.length; ++i) {
            Flaw flaw = entries[i].flaw;
            bool wellSigned = flaw == Flaw.None || flaw > Flaw.ChangedValue;
            bool settled = model.pay(entries[i].row, wellSigned, block.timestamp);

            // Each row says what became of it, in the order of the rows.
            while (!_isOutcome(logs[next])) ++next;
            bool says = logs[next++].topics[0] == Authorizations.PaymentSettled.selector;
            vm.assertTrue(says == settled, settled ? "a good row was skipped" : "a bad row was settled");

            if (settled) settledCount += 1;
            else skippedCount += 1;
            if (settled && flaw != Flaw.None) settledDespite[flaw] += 1;
        }
        events.read(logs, address(gateway));
    }

    function _isOutcome(Vm.Log memory log) private pure returns (bool) {
        return log.topics[0] == Authorizations.PaymentSettled.selector
            || log.topics[0] == Batches.AuthorizationSkipped.selector;
    }

    function _entries(uint256 from, uint256 most) private view returns (Entry[] memory entries) {
        uint256 count = journal.length < most ? journal.length : most;
        entries = new Entry[](count);
        for (uint256 i = 0; i < count; ++i) {
            entries[i] = journal[(from % journal.length + i) % journal.length];
        }
    }

    /// Asks the chain about each row by payer and nonce, as the service does after a crash.
    function _unsettled(uint256 from, uint256 most) private view returns (Entry[] memory entries) {
        Entry[] memory asked = _entries(from, most);
        uint256 count = 0;
        for (uint256 i = 0; i < asked.length; ++i) {
            if (!gateway.authorizationState(asked[i].row.from, asked[i].row.nonce)) asked[count++] = asked[i];
        }
        entries = new Entry[](count);
        for (uint256 i = 0; i < count; ++i) {
            entries[i] = asked[i];
        }
    }
}
